import StockroomCore

extension StorageEngine {
  /// Applies the operation, unless it would replace a value of a newer version. A removal of such a value is applied, and
  /// so is a write over a value that the engine cannot read.
  ///
  /// Runs in a transaction if the engine supports them. Otherwise the value is read first.
  ///
  /// - Throws: `StorageError` with code `unsupported`, with nothing changed; what the engine throws.
  func apply(
    _ operation: StorageOperation, to key: CacheKey, keepingReadableNewerThan version: Int
  ) async throws {
    guard case .write = operation else { return try await apply([operation]) }
    if capabilities.contains(.transactions) {
      return try await withTransaction { transaction in
        do {
          try transaction.read(key: key)?.rejectReplacing(key, newerThan: version)
        } catch let error as StorageError where error.isOfUnreadableValue {}
        try transaction.apply([operation])
      }
    }
    do {
      try await read(key: key)?.rejectReplacing(key, newerThan: version)
    } catch let error as StorageError where error.isOfUnreadableValue {}
    try await apply([operation])
  }
}

extension StorageError {
  /// Whether the value exists and cannot be read: it is corrupted, or encrypted with another key.
  fileprivate var isOfUnreadableValue: Bool { code == .corrupted || code == .permissionDenied }
}
