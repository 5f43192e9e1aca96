#if canImport(FoundationEssentials) && !canImport(Darwin)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An engine that can copy its place, while it is in use, to a directory on which the same engine opens.
///
/// The engines on files and databases of this machine do. Layers do not: what is backed up is the place, as the engine below the
/// layers keeps it, encrypted values for instance as they are. An archive, by `dump(to:)` of StockroomTransfer, does the same for every
/// engine, and can be restored into every other.
public protocol BackupEngine: StorageEngine {
  /// Copies a snapshot, taken during the call: every entry, with its times and its position in the order.
  ///
  /// The copy is made in a directory beside the one that is asked for, whose name begins with a dot and has `.partial-` in it, and is
  /// renamed once all of it is on the disk. So the directory is there as a whole or not at all, whatever happens meanwhile; after the death of the
  /// process, the one with `.partial-` in its name may be left, which can be removed. Everything in the copy belongs to the owner
  /// alone (0600, 0700), whatever the permissions of the engine are.
  ///
  /// O(N), on threads of its own. A task that is cancelled leaves nothing behind.
  ///
  /// - Parameter directory: Where the copy is to be. It must be empty or absent. Those above it are made if they are missing.
  /// - Throws: ``StorageError`` with code `unsupported` if there is something at the path already, `diskFull`,
  ///   `permissionDenied` or `readOnly` if the copy cannot be written; otherwise as ``StorageEngine/readAllEntries()``;
  ///   `CancellationError`.
  func backUp(to directory: FileManager.Directory) async throws
}
