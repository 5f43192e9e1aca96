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

/// The results of two reports for one subject in one workload.
struct ComparedResults {
  let before: BenchmarkResult
  let after: BenchmarkResult

  /// The logarithm of the ratio of the times. Noise only lengthens a measurement, so the least samples are compared.
  var shift: Double { log(after.seconds.minimum / max(1e-12, before.seconds.minimum)) }

  /// Whether less than half of the time is processor time in a report: the rest is mostly waiting for the disk, which
  /// other processes use as well.
  var waits: Bool { before.waits || after.waits }

  /// Whether, after the new samples are divided by `factor`, all of one report are less than all of the other.
  func isApart(dividingBy factor: Double) -> Bool {
    after.seconds.minimum / factor > before.seconds.maximum
      || after.seconds.maximum / factor < before.seconds.minimum
  }

  /// The sum of the relative differences between the two least samples of each report.
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

extension [Double] {
  /// The median; of two middle elements the one nearer to zero, or zero if they differ in sign. With their mean, half
  /// of the elements would not count as noise although they differ from the other half.
  fileprivate var medianNearestToZero: Double {
    if isEmpty { return 0 }
    let sorted = sorted()
    return Swift.min(Swift.max(0, sorted[(count - 1) / 2]), sorted[count / 2])
  }
}

/// Measurements with the same sources of noise, from which the noise between the two runs is estimated.
struct ComparedGroup {
  /// The number of standard deviations beyond which a shift is significant. Of three unchanged engines, measured 140
  /// times in a row while other processes used the same two processors and the same disk, one report in sixteen had a
  /// false change.
  private static let unusual = 4.0

  private let pairs: [ComparedResults]
  /// The shift that most subjects share, which is attributed to the disk.
  private let common: Double
  /// The standard deviation of the shifts from the median of their subject.
  private let noise: Double

  init(_ pairs: [ComparedResults], sharesDisk: Bool) {
    self.pairs = pairs
    let medians = Dictionary(grouping: pairs, by: \.after.subject)
      .mapValues { $0.map(\.shift).medianNearestToZero }
    common = sharesDisk && medians.count > 1 ? medians.values.map(\.self).medianNearestToZero : 0
    // From the median of each subject, so that an engine that is slower in everything does not count as noise.
    let distances = pairs.map { abs($0.shift - (medians[$0.after.subject] ?? 0)) }
    // The median absolute deviation of the standard normal distribution is 0.6745.
    noise = distances.medianNearestToZero / 0.6745
  }

  /// The significant differences.
  var changes: [ComparedResults] {
    pairs.filter { pair in
      let least = max(BenchmarkComparison.threshold, 2 * pair.gap, exp(Self.unusual * noise) - 1)
      // The reported difference is that of the measured times, so it must be significant too, and in the same
      // direction.
      let corrected = pair.shift - common
      return pair.isApart(dividingBy: 1) && pair.isApart(dividingBy: exp(common))
        && corrected.sign == pair.shift.sign && exp(abs(corrected)) - 1 > least
        && exp(abs(pair.shift)) - 1 > BenchmarkComparison.threshold
    }
  }

  /// A caveat if the disk itself was much slower or faster.
  var caveats: [String] {
    guard exp(abs(common)) - 1 > BenchmarkComparison.threshold else { return [] }
    return [
      "Disk: with most engines, workloads that wait for it take \(Units.digits(exp(common))) times as long as "
        + "before. The comparison corrects for that."
    ]
  }
}
