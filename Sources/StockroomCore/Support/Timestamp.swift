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

/// A moment as engines store it: whole nanoseconds since 1970.
package struct Timestamp: Sendable, Hashable, Comparable {
  package var nanoseconds: Int64

  package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  /// The time by the system's clock, which may be set back.
  package static func now() -> Timestamp {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Timestamp(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
  }

  /// A `Date` counts seconds since 2001 in floating point. Taking the offset off as an integer first keeps all
  /// the precision that it has.
  package var date: Date {
    // Wrapping: a corrupted file may hold any number.
    let sinceReference = nanoseconds &- Self.referenceDate
    let (seconds, rest) = sinceReference.quotientAndRemainder(dividingBy: 1_000_000_000)
    return Date(timeIntervalSinceReferenceDate: Double(seconds) + Double(rest) / 1e9)
  }

  /// 1 January 2001, 00:00 UTC.
  private static let referenceDate: Int64 = 978_307_200_000_000_000

  package static func < (left: Timestamp, right: Timestamp) -> Bool { left.nanoseconds < right.nanoseconds }
}
