import StockroomCore

extension StorageEngine {
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
    case .invalidKey, .valueTooLarge, .closed, .locked, .readOnly, .permissionDenied, .diskFull, .unsupported,
      .conflict, .unavailable:
      true
    default: false
    }
  }
}
