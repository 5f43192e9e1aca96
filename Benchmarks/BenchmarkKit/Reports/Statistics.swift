/// Median and range of several measurements of the same quantity.
public struct Statistics: Sendable, Hashable, Codable {
  /// The median; of an even number of measurements, the mean of the two in the middle.
  public let median: Double
  /// The least of the measurements.
  public let minimum: Double
  /// The greatest of the measurements.
  public let maximum: Double

  /// The statistics of the samples; nil if there are none.
  public init?(_ samples: [Double]) {
    let sorted = samples.sorted()
    guard let minimum = sorted.first, let maximum = sorted.last else { return nil }
    self.minimum = minimum
    self.maximum = maximum
    let middle = sorted.count / 2
    median = sorted.count.isMultiple(of: 2) ? (sorted[middle - 1] + sorted[middle]) / 2 : sorted[middle]
  }

  /// The difference between the greatest and the least measurement.
  public var spread: Double { maximum - minimum }

  /// Half of the spread divided by the median: 0.05 for measurements within about five percent.
  public var relativeSpread: Double { median > 0 ? spread / 2 / median : 0 }

  /// Whether the ranges overlap, so that the difference of the medians may be chance.
  ///
  /// If two engines were equally fast, five measurements of one would all be less than five of the other in 1
  /// of 126 comparisons.
  public func overlaps(_ other: Statistics) -> Bool {
    minimum <= other.maximum && other.minimum <= maximum
  }
}
