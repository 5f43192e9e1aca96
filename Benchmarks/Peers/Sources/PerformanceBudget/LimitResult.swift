import BenchmarkKit

/// The result of a run for one limit.
public struct LimitResult: Sendable, Hashable, Codable {
  /// The name of the limit.
  public let limit: String
  /// The measurement that is limited.
  public let measured: Limit.Side
  /// The measurement that it is compared with.
  public let reference: Limit.Side?
  /// The quantity that is compared.
  public let quantity: Limit.Quantity
  /// The upper bound, if the limit is one.
  public let atMost: Double?
  /// The lower bound, if the limit is one.
  public let atLeast: Double?
  /// The statistics of the quantity over the repetitions; of a stall, only its median. Nil if a side was not measured.
  public let value: Statistics?
  /// The median time of an operation of the limited side in seconds.
  public let measuredSeconds: Double?
  /// The median time of an operation of the other side in seconds.
  public let referenceSeconds: Double?
  /// Whether the median is within the bound. False without a result.
  public let isMet: Bool

  /// Compares a run with a limit. Both sides of a ratio are from the same repetition, so that a temporary slowdown of
  /// the machine affects both, at least if they are measured in the same workload.
  public init(_ limit: Limit, in report: BenchmarkReport) {
    let result = report.result(of: limit.measured.subject, in: limit.measured.workload)
    let other = limit.reference.flatMap { report.result(of: $0.subject, in: $0.workload) }
    let value = Self.value(limit.quantity, result, other)
    self.limit = limit.name
    measured = limit.measured
    reference = limit.reference
    quantity = limit.quantity
    switch limit.bound {
    case .atMost(let bound): (atMost, atLeast) = (bound, nil)
    case .atLeast(let bound): (atMost, atLeast) = (nil, bound)
    }
    self.value = value
    measuredSeconds = result?.secondsPerOperation
    referenceSeconds = other?.secondsPerOperation
    isMet = value.map { limit.bound.admits($0.median) } ?? false
  }

  private static func value(
    _ quantity: Limit.Quantity, _ result: BenchmarkResult?, _ other: BenchmarkResult?
  ) -> Statistics? {
    guard let result else { return nil }
    // Work of less than a millisecond has no stall.
    if quantity == .stall { return Statistics([(result.stall ?? 0) * 1_000]) }
    guard let other else { return nil }
    let ratios = zip(result.samples, other.samples).map { seconds, otherSeconds in
      (seconds / Double(result.operations)) / (otherSeconds / Double(other.operations))
    }
    return Statistics(quantity == .time ? ratios : ratios.map { 1 / $0 })
  }
}
