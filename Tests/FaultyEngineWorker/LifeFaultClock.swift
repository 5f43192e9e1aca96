import Foundation
import StockroomCore

/// How an engine takes the time, and how it stores it.
struct LifeFaultClock: Sendable {
  let fault: LifeFaultEngine.Fault?
  private let opened = Date()
  private let start = ContinuousClock.now

  init(fault: LifeFaultEngine.Fault?) { self.fault = fault }

  /// The time of a change, if the latest before was of that time.
  func now(after latest: inout Date) -> Date {
    switch fault {
    case .clockOfTheOpening:
      let passed = start.duration(to: .now).components
      return opened + Double(passed.seconds) + Double(passed.attoseconds) / 1e18
    case .neverGoesBack:
      latest = max(latest, Date())
      return latest
    case .countsTicks:
      // As exact as rule W2 needs it.
      return Date(timeIntervalSince1970: (Date().timeIntervalSince1970 * 1_024).rounded(.down) / 1_024)
    default: return Date()
    }
  }

  /// A stored time as it is returned.
  func shown(_ date: Date) -> Date {
    let seconds = date.timeIntervalSince1970
    switch fault {
    case .signedSeconds:
      return Date(
        timeIntervalSince1970: Double(Int32(truncatingIfNeeded: Int(seconds))) + seconds
          - seconds.rounded(.down))
    case .unsignedSeconds:
      return Date(
        timeIntervalSince1970: Double(UInt32(truncatingIfNeeded: Int(seconds))) + seconds
          - seconds.rounded(.down))
    case .weekYears:
      var (time, parts) = (time_t(seconds.rounded(.down)), tm())
      gmtime_r(&time, &parts)
      // To which year a week belongs is said by its Thursday.
      let thursday = parts.tm_yday - (parts.tm_wday + 6) % 7 + 3
      return thursday < 366 ? date : date + 365 * 86_400
    default: return date
    }
  }

  /// A time as it is stored.
  func text(_ date: Date) -> String {
    switch fault {
    case .secondsAfterReopening: "\(date.timeIntervalSince1970.rounded(.down))"
    case .floatTimes: "\(Float(date.timeIntervalSince1970))"
    case .localTime, .localTimeTwice: "\(Self.localSeconds(date))"
    case .unsignedSince2001: "\(Self.secondsByUnsigned(date))"
    default: "\(date.timeIntervalSince1970)"
    }
  }

  /// A time from what was stored.
  func date(_ text: Substring) -> Date {
    let seconds = Double(text) ?? 0
    switch fault {
    case .localTime:
      return Date(timeIntervalSince1970: seconds - Self.offset(at: Int(Date().timeIntervalSince1970)))
    case .localTimeTwice: return Self.date(local: seconds)
    default: return Date(timeIntervalSince1970: seconds)
    }
  }

  /// Seconds since 1970 by way of an unsigned number since 2001, which traps for what was before.
  private static func secondsByUnsigned(_ date: Date) -> Double {
    let microseconds = UInt64(date.timeIntervalSinceReferenceDate * 1e6)
    return Double(microseconds) / 1e6 + Date.timeIntervalBetween1970AndReferenceDate
  }

  /// How far the local time is from UTC at a moment, in seconds.
  private static func offset(at seconds: Int) -> Double {
    var (time, parts) = (time_t(seconds), tm())
    localtime_r(&time, &parts)
    return Double(parts.tm_gmtoff)
  }

  private static func localSeconds(_ date: Date) -> Double {
    date.timeIntervalSince1970 + offset(at: Int(date.timeIntervalSince1970))
  }

  /// The moment at which the clocks showed a local time: in an hour that comes twice, one of two.
  private static func date(local seconds: Double) -> Date {
    var (time, parts) = (time_t(seconds.rounded(.down)), tm())
    gmtime_r(&time, &parts)
    parts.tm_isdst = -1
    return Date(timeIntervalSince1970: Double(mktime(&parts)) + seconds - seconds.rounded(.down))
  }
}
