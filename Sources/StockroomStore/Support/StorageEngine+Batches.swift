import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension StorageEngine {
  /// Does the operations in order, as one batch, with the plainest method that can: an engine of six methods writes one
  /// entry as a whole, and may have a better way than the default for many writes.
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

  /// Whether operations that failed together with this error have surely left no trace (rules W4, F1).
  func hasSurelyDoneNothing(of operations: [StorageOperation], after error: any Error) -> Bool {
    guard error.precedesChanges else { return false }
    if capabilities.contains(.atomicBatches) { return true }
    guard operations.count == 1, let operation = operations.first else { return operations.isEmpty }
    // To remove everything is many removals to an engine without a better way.
    if case .removeAll = operation { return false }
    return true
  }
}

extension Error {
  /// Whether an engine throws this before it changes anything. After any other error nobody knows.
  var precedesChanges: Bool {
    switch (self as? StorageError)?.code {
    case .invalidKey, .valueTooLarge, .closed, .locked, .readOnly, .permissionDenied, .diskFull, .unsupported:
      true
    default: false
    }
  }
}
