import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension StorageEngine {
  /// Applies the operations in order, as one batch, with the most specific method: an engine that implements the required
  /// methods only writes one entry atomically, and it may have a better way than the default for several writes.
  func perform(_ operations: [StorageOperation]) async throws {
    guard let first = operations.first else { return }
    if operations.count == 1 {
      switch first {
      case .write(let data, let key): return try await write(data, key: key)
      case .remove(let key): return try await remove(key: key)
      case .removeAll: return try await removeAllData()
      }
    }
    let written: [(key: CacheKey, data: Data)] = operations.compactMap {
      if case .write(let data, let key) = $0 { (key, data) } else { nil }
    }
    let removed: [CacheKey] = operations.compactMap { if case .remove(let key) = $0 { key } else { nil } }
    if written.count == operations.count {
      try await write(written)
    } else if removed.count == operations.count {
      try await remove(keys: removed)
    } else {
      try await apply(operations)
    }
  }

  /// Whether operations that failed with this error have certainly changed nothing (rules W4, F1).
  func wasDefinitelyNotApplied(_ operations: [StorageOperation], after error: any Error) -> Bool {
    guard error.guaranteesNoChange else { return false }
    if capabilities.contains(.atomicBatches) { return true }
    guard operations.count == 1, let operation = operations.first else { return operations.isEmpty }
    // Without a method of its own for that, an engine removes all entries one by one.
    if case .removeAll = operation { return false }
    return true
  }
}

extension Error {
  /// Whether an engine throws this error before it changes anything. After any other error the outcome is unknown.
  var guaranteesNoChange: Bool {
    switch (self as? StorageError)?.code {
    case .invalidKey, .valueTooLarge, .closed, .locked, .readOnly, .permissionDenied, .diskFull, .unsupported:
      true
    default: false
    }
  }
}
