/// What a ``BenchmarkRunner`` is about to do.
public struct BenchmarkProgress: Sendable, Hashable, CustomStringConvertible {
  /// The name of the subject.
  public let subject: String
  /// The name of the workload.
  public let workload: String
  /// Which repetition this is, from 1. The warm-up is number 0.
  public let repetition: Int
  /// How many repetitions there will be.
  public let repetitions: Int
  /// How much of the run is done, from 0 to 1, counted in measurements.
  public let fraction: Double

  /// How long the run has taken so far.
  public let elapsed: Duration

  /// How long the rest will take if it goes on as before; nil while too little is done to tell.
  public var remaining: Duration? {
    guard fraction >= 0.02 else { return nil }
    return elapsed * ((1 - fraction) / fraction)
  }

  /// One line for people.
  public var description: String {
    let round = repetition == 0 ? "warm-up" : "repetition \(repetition) of \(repetitions)"
    let rest = remaining.map { ", \(Units.clock($0)) left" } ?? ""
    return "\(Units.percent(fraction))\(rest), \(round): \(subject), \(workload)"
  }
}
