/// A histogram of durations with a relative error of at most 3%: each power of two is divided into 32 buckets.
struct LatencyHistogram: Sendable, Hashable {
  private static let bucketBits = 5

  private var counts: [UInt64] = []
  private(set) var count: UInt64 = 0
  private(set) var maximum: UInt64 = 0

  mutating func add(nanoseconds: UInt64, count added: UInt64 = 1) {
    let bucket = Self.bucket(of: nanoseconds)
    if bucket >= counts.count { counts += repeatElement(0, count: bucket + 1 - counts.count) }
    counts[bucket] += added
    count += added
    maximum = max(maximum, nanoseconds)
  }

  func merging(_ other: LatencyHistogram) -> LatencyHistogram {
    var merged = self
    let missing = other.counts.count - counts.count
    if missing > 0 { merged.counts += repeatElement(0, count: missing) }
    for (bucket, count) in other.counts.enumerated() { merged.counts[bucket] += count }
    merged.count += other.count
    merged.maximum = max(maximum, other.maximum)
    return merged
  }

  /// The quantile in nanoseconds, such as 0.99 for p99; nil if the histogram is empty.
  func quantile(_ part: Double) -> Double? {
    guard count > 0 else { return nil }
    let rank = max(1, UInt64((part * Double(count)).rounded(.up)))
    var seen: UInt64 = 0
    for (bucket, count) in counts.enumerated() {
      seen += count
      if seen >= rank { return min(Self.middle(of: bucket), Double(maximum)) }
    }
    return Double(maximum)
  }

  private static func bucket(of nanoseconds: UInt64) -> Int {
    let parts = UInt64(1) << bucketBits
    if nanoseconds < parts { return Int(nanoseconds) }
    let power = 63 - nanoseconds.leadingZeroBitCount
    let part = (nanoseconds >> UInt64(power - bucketBits)) - parts
    return (power - bucketBits + 1) << bucketBits + Int(part)
  }

  private static func middle(of bucket: Int) -> Double {
    let parts = 1 << bucketBits
    if bucket < parts { return Double(bucket) }
    let shift = bucket >> bucketBits - 1
    let least = UInt64(parts + bucket & (parts - 1)) << UInt64(shift)
    return Double(least) + Double(UInt64(1) << UInt64(shift)) / 2
  }
}
