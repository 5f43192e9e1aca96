/// Why there is no report.
public struct BenchmarkError: Error, Sendable, CustomStringConvertible {
  /// The subject that failed, or nil if the run was not possible at all.
  public let subject: String?
  /// The workload in which it failed, or nil if that happened while opening or closing.
  public let workload: String?
  /// What happened, in a sentence.
  public let message: String
  /// What the engine threw, if it did.
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

/// What a verification throws when an engine gave something else than what was written to it.
struct WrongAnswer: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
