/// Whether an engine may write to its place.
public enum StorageAccess: Sendable, CaseIterable {
  /// The engine reads and writes, and creates the place if it does not exist.
  case readWrite
  /// The engine only reads. It does not create the place, changes no entry and needs no write permission. Methods that write
  /// throw ``StorageError/Code/readOnly``.
  case readOnly
}
