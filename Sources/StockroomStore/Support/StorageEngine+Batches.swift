import StockroomCore

extension StorageEngine {
  /// Whether it is certain that operations that failed with this error have changed nothing (rules W4, F1).
  func wasDefinitelyNotApplied(_ operations: [StorageOperation], after error: any Error) -> Bool {
    guard error.guaranteesNoChange else { return false }
    return capabilities.contains(.atomicBatches) || !operations.mayBeAppliedInPart
  }
}

extension [StorageOperation] {
  /// Whether a part of the operations may have been applied if they fail, unless the engine has `EngineCapabilities.atomicBatches`.
  ///
  /// This includes a single `removeAll`: the default implementation of `removeAllData()` removes the entries one by one.
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

  /// Whether no other call should follow this error. Either every call would fail in the same way, for `locked` after
  /// waiting a minute each; or, for `outcomeUnknown`, the call may have taken effect and must not be repeated, since others
  /// may have changed the same entries since then.
  var affectsEveryCall: Bool {
    guard let code = (self as? StorageError)?.code else { return false }
    return [.locked, .closed, .unavailable, .outcomeUnknown].contains(code)
  }
}
