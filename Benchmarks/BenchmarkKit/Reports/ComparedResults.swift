#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// What two reports say of one subject in one workload.
struct ComparedResults {
  let before: BenchmarkResult
  let after: BenchmarkResult

  /// How much longer it takes now, as a logarithm. Whatever disturbs a measurement makes it longer, so the least sample
  /// says most.
  var shift: Double { log(after.seconds.minimum / max(1e-12, before.seconds.minimum)) }

  /// Whether the time is mostly that of a disk, which other processes use as well.
  var waits: Bool { before.waits || after.waits }

  /// Whether, the samples of now being divided by `factor`, all of one report are less than all of the other.
  func isApart(dividingBy factor: Double) -> Bool {
    after.seconds.minimum / factor > before.seconds.maximum
      || after.seconds.maximum / factor < before.seconds.minimum
  }

  /// How far the least sample of each report is from the next, which was disturbed as little.
  var gap: Double { Self.gap(before.samples) + Self.gap(after.samples) }

  private static func gap(_ samples: [Double]) -> Double {
    let sorted = samples.sorted()
    return sorted.count > 1 ? sorted[1] / max(1e-12, sorted[0]) - 1 : 0
  }
}

extension BenchmarkResult {
  fileprivate var waits: Bool {
    processorSecondsPerOperation * Double(operations) < seconds.median / 2
  }
}

/// Measurements that the same things disturb, so that together they say how far two runs of the same code lie apart.
struct ComparedGroup {
  /// How many times what is usual in its group a shift must be. Of three engines that had not changed, measured 140 times
  /// in a row while others used the same two processors and the same disk, this left one report of a change in sixteen.
  private static let unusual = 4.0

  private let pairs: [ComparedResults]
  /// What the shifts of most subjects have in common: on a disk that all of them wait for it is the disk's.
  private let common: Double
  /// How far the shifts of a subject lie from the one in their middle, usually.
  private let noise: Double

  init(_ pairs: [ComparedResults], sharesDisk: Bool) {
    self.pairs = pairs
    let middles = Dictionary(grouping: pairs, by: \.after.subject)
      .compactMapValues { Statistics($0.map(\.shift))?.median }
    let shifts = middles.values.sorted()
    if sharesDisk, shifts.count > 1 {
      // That of the subject in the middle; of the two in the middle the lesser shift, or none if they differ in sign.
      common = min(max(0, shifts[(shifts.count - 1) / 2]), shifts[shifts.count / 2])
    } else {
      common = 0
    }
    // From the middle of each subject, so that one that has become slower as a whole does not pass for noise.
    let distances = pairs.map { abs($0.shift - (middles[$0.after.subject] ?? 0)) }
    // That of a normal distribution with a standard deviation of 1 is 0.6745.
    noise = (Statistics(distances)?.median ?? 0) / 0.6745
  }

  /// The measurements that chance does not explain.
  var changes: [ComparedResults] {
    pairs.filter { pair in
      let least = max(BenchmarkComparison.threshold, 2 * pair.gap, exp(Self.unusual * noise) - 1)
      return pair.isApart(dividingBy: 1) && pair.isApart(dividingBy: exp(common))
        && exp(abs(pair.shift - common)) - 1 > least
    }
  }

  /// What was taken for the disk's doing, if it is much.
  var caveats: [String] {
    guard exp(abs(common)) - 1 > BenchmarkComparison.threshold else { return [] }
    return [
      "Disk: what waits for it takes \(Units.digits(exp(common))) times as long as before, with most engines, "
        + "and is compared as if it did not."
    ]
  }
}
