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

  /// One line for people.
  public var description: String {
    let round = repetition == 0 ? "warm-up" : "repetition \(repetition) of \(repetitions)"
    return "\(Units.percent(fraction)) \(round): \(subject), \(workload)"
  }
}
