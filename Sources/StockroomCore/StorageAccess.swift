/// What an engine on a place may do there.
public enum StorageAccess: Sendable, CaseIterable {
  /// It reads and writes, and makes the place if there is none.
  case readWrite
  /// It only reads. It makes no place, changes no entry, and does not need the permission to write. What would write throws
  /// ``StorageError/Code/readOnly``.
  case readOnly
}
