import Foundation
import StockroomCore
import Testing

@Suite struct TimestampTests {
  @Test("A date becomes a timestamp with the same date, whatever its nanoseconds")
  func dates() {
    var random = SystemRandomNumberGenerator()
    for exponent in 0..<62 {
      for _ in 0..<100 {
        let distance = Int64.random(in: 0...(1 << exponent), using: &random)
        // Around 1970 and around 2001, where dates are most precise.
        for nanoseconds in [distance, -distance, 978_307_200_000_000_000 - distance / 2] {
          let date = Timestamp(nanoseconds: nanoseconds).date
          #expect(Timestamp(date).date == date)
        }
      }
    }
    for date in [Date(), Date(timeIntervalSince1970: 0), Date(timeIntervalSinceReferenceDate: -0.5)] {
      #expect(Timestamp(date).date == date)
    }
  }

  @Test("A system time out of range becomes the first or the last time that can be stored")
  func impossibleTimes() {
    #expect(Timestamp(clamping: timespec(tv_sec: 1, tv_nsec: 5)).nanoseconds == 1_000_000_005)
    #expect(Timestamp(clamping: timespec(tv_sec: 9_223_372_036, tv_nsec: 999_999_999)).nanoseconds == .max)
    #expect(Timestamp(clamping: timespec(tv_sec: 100_000_000_000, tv_nsec: 0)).nanoseconds == .max)
    #expect(Timestamp(clamping: timespec(tv_sec: -100_000_000_000, tv_nsec: 0)).nanoseconds == .min)
  }

  @Test("A date that is out of range or not a number becomes one that can be stored")
  func impossibleDates() {
    let first = Timestamp(nanoseconds: -(1 << 62))
    let last = Timestamp(nanoseconds: (1 << 62) - 1)
    #expect(
      [.distantPast, Date(timeIntervalSinceReferenceDate: -.infinity)].allSatisfy { Timestamp($0) == first })
    #expect(
      [.distantFuture, Date(timeIntervalSinceReferenceDate: .infinity)].allSatisfy { Timestamp($0) == last })
    #expect(
      Timestamp(Date(timeIntervalSinceReferenceDate: .nan)).date == Date(timeIntervalSinceReferenceDate: 0))
    let entry = StorageEntry(
      key: CacheKey("a"), data: Data(), createdAt: .distantFuture, updatedAt: Date(timeIntervalSince1970: 1))
    #expect(EntryTimes(entry).createdAt == EntryTimes(entry).updatedAt)
    #expect(EntryTimes(entry).updatedAt == Timestamp(nanoseconds: 1_000_000_000))
  }

  @Test("A timestamp and its date agree to the microsecond")
  func date() {
    let before = Date()
    let now = Timestamp.now().date
    #expect(before.addingTimeInterval(-1e-6) <= now && now <= Date().addingTimeInterval(1e-6))
    #expect(Timestamp(nanoseconds: 0).date == Date(timeIntervalSince1970: 0))
    #expect(Timestamp(nanoseconds: 978_307_200_500_000_000).date == Date(timeIntervalSinceReferenceDate: 0.5))
  }
}
