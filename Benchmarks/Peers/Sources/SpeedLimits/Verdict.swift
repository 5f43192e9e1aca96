import BenchmarkKit

/// What a run says about a limit.
public struct Verdict: Sendable, Hashable, Codable {
  /// The name of the limit.
  public let limit: String
  /// What is limited.
  public let measured: Limit.Side
  /// What it is compared with.
  public let reference: Limit.Side?
  /// What is compared.
  public let quantity: Limit.Quantity
  /// The most that is allowed, if there is such a limit.
  public let atMost: Double?
  /// The least that is allowed, if there is such a limit.
  public let atLeast: Double?
  /// What was measured: of a ratio, that of each repetition. Nil if a side has no result.
  public let value: Statistics?
  /// How many seconds an operation takes, at the median.
  public let measuredSeconds: Double?
  /// How many seconds an operation of the other side takes, at the median.
  public let referenceSeconds: Double?
  /// Whether the median is within the limit. Without a result it is not.
  public let isKept: Bool

  /// Judges a run. Both sides of a ratio are from the same repetition, a few moments apart, so that what slows the
  /// machine down for a while slows down both.
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
    isKept = value.map { limit.bound.admits($0.median) } ?? false
  }

  private static func value(
    _ quantity: Limit.Quantity, _ result: BenchmarkResult?, _ other: BenchmarkResult?
  ) -> Statistics? {
    guard let result else { return nil }
    if quantity == .stall { return result.stall.flatMap { Statistics([$0 * 1_000]) } }
    guard let other else { return nil }
    let ratios = zip(result.samples, other.samples).map { seconds, otherSeconds in
      (seconds / Double(result.operations)) / (otherSeconds / Double(other.operations))
    }
    return Statistics(quantity == .time ? ratios : ratios.map { 1 / $0 })
  }
}
