#if canImport(FoundationEssentials) && !canImport(Darwin)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An engine that can copy its place to another directory while it is in use. The same kind of engine opens the copy.
///
/// The engines on local files and databases conform. Layers do not: a backup copies the place as the engine below the layers
/// stores it, so encrypted values stay encrypted. An archive, made by `dump(to:)` of StockroomTransfer, works with every engine
/// and can be restored into any other.
public protocol BackupEngine: StorageEngine {
  /// Copies a snapshot taken during the call: every entry, with its timestamps and its position in the order.
  ///
  /// The copy is made in a directory next to `directory`, whose name begins with a dot and contains `.partial-`, and is renamed
  /// once it is complete on the disk. So `directory` never contains a partial copy. If the process dies, the temporary directory
  /// may be left behind and can be removed. Only the owner can access the copy (0600, 0700), even if the engine has other
  /// permissions.
  ///
  /// O(N), on separate threads. A cancelled call removes the partial copy.
  ///
  /// - Parameter directory: Where to make the copy. It must be empty or absent. Missing parent directories are created.
  /// - Throws: ``StorageError`` with code `unsupported` if the path exists and is not an empty directory, `diskFull`,
  ///   `permissionDenied` or `readOnly` if the copy cannot be written; otherwise as ``StorageEngine/readAllEntries()``;
  ///   `CancellationError`.
  func backUp(to directory: FileManager.Directory) async throws
}
