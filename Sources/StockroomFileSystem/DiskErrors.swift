import StockroomCore

// Most errors are errors of the system: `StorageError.posix`. These are the remaining ones.
extension StorageError {
  static func directoryRemoved(_ path: String) -> StorageError {
    StorageError(.io, "The directory \(path) has been removed while the engine was open on it.")
  }

  /// Not `outcomeUnknown`, which is for servers: the failure is final for this engine, and opening the place
  /// again determines the outcome.
  static func undecidedBatch(_ path: String, _ cause: any Error) -> StorageError {
    StorageError(
      .io,
      "A batch in \(path) could neither be completed nor undone. Open the directory again, which does one of the two.",
      underlying: cause)
  }

  static func corruptedState(_ path: String, _ what: String) -> StorageError {
    StorageError(
      .corrupted,
      "\(path) is corrupted: \(what). The entries are ordinary files beside it; if no program has the directory "
        + "open, removing this file makes the next open rebuild it.")
  }
}
