import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Times as other libraries store them.
enum SourceDate {
  /// The last second of 2261. Engines count nanoseconds in 64 bits.
  private static let limit: Int64 = 9_214_646_399

  /// A time such as `2022-08-22T09:30:00.125`, in UTC unless it ends with `Z` or an offset. Nil if it is not
  /// a time, or is before 1970 or after 2261.
  static func date(iso8601 text: String) -> Date? {
    var rest = Array(text.utf8)[...]
    guard let year = rest.popNumber(digits: 4), rest.popFirst() == UInt8(ascii: "-"),
      let month = rest.popNumber(digits: 2), 1...12 ~= month, rest.popFirst() == UInt8(ascii: "-"),
      let day = rest.popNumber(digits: 2), 1...31 ~= day, [UInt8(ascii: "T"), 32].contains(rest.popFirst()),
      let hour = rest.popNumber(digits: 2), hour < 24, rest.popFirst() == UInt8(ascii: ":"),
      let minute = rest.popNumber(digits: 2), minute < 60, rest.popFirst() == UInt8(ascii: ":"),
      let second = rest.popNumber(digits: 2), second <= 60, let nanoseconds = rest.popFraction(),
      let offset = rest.popOffset(), rest.isEmpty
    else { return nil }
    let seconds =
      days(year: year, month: month, day: day) * 86_400 + hour * 3_600 + minute * 60 + second - offset
    guard 0...limit ~= seconds else { return nil }
    return Timestamp(nanoseconds: seconds * 1_000_000_000 + nanoseconds).date
  }

  /// A number of seconds since 1970. Nil if that is not a time from 1970 to 2261.
  static func date(secondsSince1970 seconds: Double) -> Date? {
    guard 0...Double(limit) ~= seconds else { return nil }
    return Date(timeIntervalSince1970: seconds)
  }

  /// The time of a file. A time before 1970 becomes 1970.
  static func date(_ time: Timestamp) -> Date { max(time, Timestamp(nanoseconds: 0)).date }

  /// Days from 1 January 1970 in the Gregorian calendar, with years that begin in March, so that the leap day is the last.
  private static func days(year: Int64, month: Int64, day: Int64) -> Int64 {
    let (year, month) = month > 2 ? (year, month - 3) : (year - 1, month + 9)
    let leapDays = year / 4 - year / 100 + year / 400
    // There are 719468 days from 1 March of year 0 to 1 January 1970.
    return year * 365 + leapDays + (month * 153 + 2) / 5 + day - 1 - 719_468
  }
}

extension ArraySlice<UInt8> {
  fileprivate mutating func popDigit() -> Int64? {
    guard let byte = first, UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte else { return nil }
    removeFirst()
    return Int64(byte - UInt8(ascii: "0"))
  }

  fileprivate mutating func popNumber(digits: Int) -> Int64? {
    var number: Int64 = 0
    for _ in 0..<digits {
      guard let digit = popDigit() else { return nil }
      number = number * 10 + digit
    }
    return number
  }

  /// The nanoseconds after a point, if there is one.
  fileprivate mutating func popFraction() -> Int64? {
    guard first == UInt8(ascii: ".") else { return 0 }
    removeFirst()
    var (nanoseconds, unit): (Int64, Int64) = (0, 100_000_000)
    guard let digit = popDigit() else { return nil }
    nanoseconds = digit * unit
    while let digit = popDigit() {
      unit /= 10
      nanoseconds += digit * unit
    }
    return nanoseconds
  }

  /// The seconds by which the local time is ahead of UTC.
  fileprivate mutating func popOffset() -> Int64? {
    switch popFirst() {
    case nil, UInt8(ascii: "Z"): return 0
    case let sign? where sign == UInt8(ascii: "+") || sign == UInt8(ascii: "-"):
      guard let hours = popNumber(digits: 2), hours < 24 else { return nil }
      if first == UInt8(ascii: ":") { removeFirst() }
      guard let minutes = popNumber(digits: 2), minutes < 60 else { return nil }
      return (hours * 3_600 + minutes * 60) * (sign == UInt8(ascii: "-") ? -1 : 1)
    default: return nil
    }
  }
}
