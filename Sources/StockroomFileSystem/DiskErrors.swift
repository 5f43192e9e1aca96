import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

// Most errors are the system's own: `StorageError.posix`. These are the others.
extension StorageError {
  /// Something that is no regular file has the name of an entry or of a file of the engine's.
  static func notAFile(_ path: String) -> StorageError {
    StorageError(.corrupted, "\(path) should be a regular file, and is something else. Move it away.")
  }

  static func directoryRemoved(_ path: String) -> StorageError {
    StorageError(.io, "The directory \(path) has been removed while the engine was open on it.")
  }

  static func damagedState(_ path: String, _ what: String) -> StorageError {
    StorageError(
      .corrupted,
      "\(path) is damaged: \(what). The entries are ordinary files beside it; if no program has the directory "
        + "open, removing this file makes the next open rebuild it.")
  }
}
