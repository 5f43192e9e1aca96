import StockroomCore

extension StorageEngine {
  /// Whether operations that failed with this error have certainly changed nothing (rules W4, F1).
  func wasDefinitelyNotApplied(_ operations: [StorageOperation], after error: any Error) -> Bool {
    guard error.guaranteesNoChange else { return false }
    return capabilities.contains(.atomicBatches) || !operations.mayBeAppliedInPart
  }
}

extension [StorageOperation] {
  /// Whether a part of them may have been done if they fail, unless the engine excludes that.
  ///
  /// An engine without its own method for removing all entries removes them one by one.
  var mayBeAppliedInPart: Bool { count > 1 || contains(.removeAll) }
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

  /// Whether every other call would fail with the same error, after a minute each if another process holds a
  /// lock; or must not be made, since it may have been made already, and others may have changed the same
  /// entries since then.
  var affectsEveryCall: Bool {
    guard let code = (self as? StorageError)?.code else { return false }
    return [.locked, .closed, .unavailable, .outcomeUnknown].contains(code)
  }
}
