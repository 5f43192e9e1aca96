import Foundation
import StockroomCore

/// How an engine reads the clock and stores times.
struct LifeFaultClock: Sendable {
  let fault: LifeFaultEngine.Fault?
  private let opened = Date()
  private let start = ContinuousClock.now

  init(fault: LifeFaultEngine.Fault?) { self.fault = fault }

  /// The time of a change after a change with the latest time.
  func now(after latest: inout Date) -> Date {
    switch fault {
    case .clockOfTheOpening:
      let passed = start.duration(to: .now).components
      return opened + Double(passed.seconds) + Double(passed.attoseconds) / 1e18
    case .neverGoesBack:
      latest = max(latest, Date())
      return latest
    case .countsTicks:
      // With the precision that rule W2 requires.
      return Date(timeIntervalSince1970: (Date().timeIntervalSince1970 * 1_024).rounded(.down) / 1_024)
    case .clockOfFiles: return Self.timeOfNewFile
    default: return Date()
    }
  }

  /// The time that the system gives to a new file: that of the system clock, even in a process with a fake clock.
  private static var timeOfNewFile: Date {
    guard let file = tmpfile() else { return Date() }
    defer { fclose(file) }
    var status = stat()
    fstat(fileno(file), &status)
    #if canImport(Darwin)
      let time = status.st_mtimespec
    #else
      let time = status.st_mtim
    #endif
    return Date(timeIntervalSince1970: Double(time.tv_sec) + Double(time.tv_nsec) / 1e9)
  }

  /// A stored time as reads return it.
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
      // The year of a week is that of its Thursday.
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
    case .localTimeByName: "\(date.timeIntervalSince1970 + Self.offsetByName(at: date))"
    case .unsignedSince2001: "\(Self.secondsByUnsigned(date))"
    default: "\(date.timeIntervalSince1970)"
    }
  }

  /// The time for a stored text.
  func date(_ text: Substring) -> Date {
    let seconds = Double(text) ?? 0
    switch fault {
    case .localTime:
      return Date(timeIntervalSince1970: seconds - Self.offset(at: Int(Date().timeIntervalSince1970)))
    case .localTimeTwice: return Self.date(local: seconds)
    case .localTimeByName:
      let date = Date(timeIntervalSince1970: seconds)
      return date - Self.offsetByName(at: date)
    default: return Date(timeIntervalSince1970: seconds)
    }
  }

  /// Seconds since 1970, converted through an unsigned number since 2001, which traps for earlier times.
  private static func secondsByUnsigned(_ date: Date) -> Double {
    let microseconds = UInt64(date.timeIntervalSinceReferenceDate * 1e6)
    return Double(microseconds) / 1e6 + Date.timeIntervalBetween1970AndReferenceDate
  }

  /// The offset of the local time from UTC at this time, in seconds.
  private static func offset(at seconds: Int) -> Double {
    var (time, parts) = (time_t(seconds), tm())
    localtime_r(&time, &parts)
    return Double(parts.tm_gmtoff)
  }

  /// The offset of Foundation's time zone, which has a name.
  private static func offsetByName(at date: Date) -> Double {
    Double(TimeZone.current.secondsFromGMT(for: date))
  }

  private static func localSeconds(_ date: Date) -> Double {
    date.timeIntervalSince1970 + offset(at: Int(date.timeIntervalSince1970))
  }

  /// The time for a local time. If the hour occurs twice, one of the two.
  private static func date(local seconds: Double) -> Date {
    var (time, parts) = (time_t(seconds.rounded(.down)), tm())
    gmtime_r(&time, &parts)
    parts.tm_isdst = -1
    return Date(timeIntervalSince1970: Double(mktime(&parts)) + seconds - seconds.rounded(.down))
  }
}
