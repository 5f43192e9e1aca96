/// The measurement that a ``BenchmarkRunner`` is about to make.
public struct BenchmarkProgress: Sendable, Hashable, CustomStringConvertible {
  /// The name of the subject.
  public let subject: String
  /// The name of the workload.
  public let workload: String
  /// The number of the repetition, from 1. The warm-up is 0.
  public let repetition: Int
  /// The number of repetitions.
  public let repetitions: Int
  /// The completed part of all measurements, from 0 to 1.
  public let fraction: Double

  /// The time since the run began.
  public let elapsed: Duration

  /// An estimate of the remaining time at the current rate; nil during the first 2% of the run.
  public var remaining: Duration? {
    guard fraction >= 0.02 else { return nil }
    return elapsed * ((1 - fraction) / fraction)
  }

  /// The progress in one line.
  public var description: String {
    let round = repetition == 0 ? "warm-up" : "repetition \(repetition) of \(repetitions)"
    let rest = remaining.map { ", \(Units.clock($0)) left" } ?? ""
    return "\(Units.percent(fraction))\(rest), \(round): \(subject), \(workload)"
  }
}
