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
  /// Something that is no regular file has the name of an entry.
  static func notAFile(_ path: String) -> StorageError {
    StorageError(
      .corrupted, "\(path) has the name of an entry and is not a regular file. Move it away to use its key.")
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
