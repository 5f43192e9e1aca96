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

/// A point in time as engines store it: whole nanoseconds since 1970.
package struct Timestamp: Sendable, Hashable, Comparable {
  package var nanoseconds: Int64

  package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  /// The nanosecond that is nearest to the date, or the first or last one of the range if the date is outside it. NaN counts as 1
  /// January 2001. A date that was converted from a timestamp in the range is preserved exactly.
  package init(_ date: Date, in range: ClosedRange<Int64> = Timestamp.range) {
    let interval = date.timeIntervalSinceReferenceDate
    // The range of seconds whose nanoseconds can be represented.
    let seconds = interval.isNaN ? 0 : min(max(interval, -8.244e9), 8.244e9)
    let whole = seconds.rounded(.down)
    let rest = ((seconds - whole) * 1e9).rounded()
    let nanoseconds = Int64(whole) * 1_000_000_000 + Int64(rest) + Self.referenceDate
    self.nanoseconds = min(max(nanoseconds, range.lowerBound), range.upperBound)
  }

  /// The range of nanoseconds of timestamps that callers pass: from November 1823 to February 2116, so that the difference of any
  /// two of them can be represented too.
  package static let range: ClosedRange<Int64> = -(1 << 62)...(1 << 62) - 1

  /// The time by the system's clock, which may be set back, or to any year.
  package static func now() -> Timestamp {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Timestamp(clamping: time)
  }

  /// The time that a system call has returned, or the nearest one that can be represented, from the year 1677 to 2262.
  package init(clamping time: timespec) {
    let (whole, isBeyond) = Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
    let (sum, isSumBeyond) = whole.addingReportingOverflow(Int64(time.tv_nsec))
    nanoseconds = isBeyond || isSumBeyond ? (time.tv_sec < 0 ? .min : .max) : sum
  }

  /// A `Date` counts seconds since 2001 in floating point. Subtracting the offset as an integer first
  /// preserves its full precision.
  package var date: Date {
    // Wrapping: a corrupted file may contain any number.
    let sinceReference = nanoseconds &- Self.referenceDate
    let (seconds, rest) = sinceReference.quotientAndRemainder(dividingBy: 1_000_000_000)
    return Date(timeIntervalSinceReferenceDate: Double(seconds) + Double(rest) / 1e9)
  }

  /// 1 January 2001, 00:00 UTC.
  private static let referenceDate: Int64 = 978_307_200_000_000_000

  package static func < (left: Timestamp, right: Timestamp) -> Bool { left.nanoseconds < right.nanoseconds }
}
