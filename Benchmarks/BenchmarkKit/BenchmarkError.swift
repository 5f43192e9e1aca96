/// The reason why a benchmark produced no report.
public struct BenchmarkError: Error, Sendable, CustomStringConvertible {
  /// The subject that failed, or nil if the run could not start.
  public let subject: String?
  /// The workload that failed, or nil if the failure was outside of a workload, such as in opening or closing.
  public let workload: String?
  /// The failure, in a sentence.
  public let message: String
  /// The cause, such as an error that the engine threw; nil if there is none.
  public let underlying: (any Error)?

  init(
    _ message: String, subject: String? = nil, workload: String? = nil, underlying: (any Error)? = nil
  ) {
    self.subject = subject
    self.workload = workload
    self.message = message
    self.underlying = underlying
  }

  /// Subject, workload, message and cause, in one line.
  public var description: String {
    let place = [subject, workload].compactMap(\.self).joined(separator: ", ")
    let cause = underlying.map { ": \($0)" } ?? ""
    return place.isEmpty ? message + cause : "\(place): \(message)\(cause)"
  }
}

extension BenchmarkError {
  /// A ``BenchmarkError`` with the subject and the workload. Returns a `CancellationError` of a cancelled task and an
  /// error that already has a subject unchanged.
  static func wrapping(
    _ error: any Error, _ message: String?, subject: String, workload: String? = nil
  ) -> any Error {
    if error is CancellationError, Task.isCancelled { return error }
    if let error = error as? BenchmarkError, error.subject != nil { return error }
    return BenchmarkError(
      message ?? (error is WrongAnswer ? "a wrong result" : "the workload failed"), subject: subject,
      workload: workload, underlying: error)
  }
}

/// Thrown if the results of an engine differ from what was written.
struct WrongAnswer: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
