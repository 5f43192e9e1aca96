import StockroomCore

/// The course of one ``SystemFaultRun``.
protocol FaultTrial {
  /// A clause that says how far it has come.
  var stage: String { get }
  /// How many calls of each kind there were among which one can be made to fail.
  var counts: [SystemCall: Int] { get }
  /// The number of the first call of each kind when it was opened again for the first time.
  var whenReopened: [SystemCall: Int] { get }

  mutating func run() async throws
}

/// The violation if a call may not throw this error after a failed system call. Nil if it may.
func mistake(in error: any Error, of call: String) -> Violation? {
  if let failure = error as? CallFailure { return mistake(in: failure.error, of: call) }
  if let violation = error as? Violation { return violation }
  guard let error = error as? StorageError else {
    return Violation("\(call) threw \(shortened(String(describing: error))), which is not a StorageError")
  }
  return [.closed, .invalidKey, .unsupported].contains(error.code)
    ? Violation("\(call) threw \(error), whose code does not fit the failed system call") : nil
}
