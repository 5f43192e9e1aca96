import Foundation
import StockroomCore

/// One execution of a ``SystemFaultRun``.
protocol FaultTrial {
  /// The current step, as a clause.
  var stage: String { get }
  /// The number of calls of each kind, of those that can be made to fail.
  var counts: [SystemCall: Int] { get }
  /// The number of the first call of each kind after the first reopening.
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

/// Fails if a descriptor stays open after a failed call, although the engine has been closed. A thread with an open
/// file may take a while to end.
func expectNothingOpen(in place: URL) async throws {
  var limit = RunningTimeLimit(.seconds(5))
  while case let open = System.openFiles(in: place), !open.isEmpty {
    if limit.isOver() {
      throw Violation("after close(), the engine still had \(open.joined(separator: ", ")) open", rule: .o4)
    }
    await letTimePass()
  }
}
