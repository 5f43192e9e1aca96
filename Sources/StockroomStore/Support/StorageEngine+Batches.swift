import StockroomCore

extension StorageEngine {
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
