import Testing

@testable import BenchmarkKit

@Suite("Statistics") struct StatisticsTests {
  @Test("The median of an odd number of samples is the one in the middle, whatever their order")
  func oddMedian() throws {
    let statistics = try #require(Statistics([5, 1, 3]))
    #expect(statistics.median == 3)
    #expect(statistics.minimum == 1)
    #expect(statistics.maximum == 5)
    #expect(statistics.spread == 4)
    #expect(statistics.relativeSpread == 2.0 / 3)
  }

  @Test("The median of an even number of samples is the mean of the two in the middle")
  func evenMedian() throws {
    #expect(try #require(Statistics([10, 2, 4, 1])).median == 3)
  }

  @Test("One sample has no spread, and none has no statistics")
  func fewSamples() throws {
    #expect(try #require(Statistics([7])).spread == 0)
    #expect(Statistics([]) == nil)
  }

  @Test("Samples overlap if their ranges do")
  func overlap() throws {
    let low = try #require(Statistics([1, 2, 3]))
    let middle = try #require(Statistics([2.5, 3.5, 4.5]))
    let high = try #require(Statistics([3.1, 5, 6]))
    #expect(low.overlaps(middle) && middle.overlaps(low))
    #expect(!low.overlaps(high) && !high.overlaps(low))
  }

  @Test(
    "Numbers are written with three digits and a unit",
    arguments: [
      (Units.seconds(0.000_000_057), "57.0 ns"), (Units.seconds(0.000_012_34), "12.3 µs"),
      (Units.seconds(0.000_999_6), "1000 µs"), (Units.seconds(0.25), "250 ms"),
      (Units.seconds(1.005), "1.00 s"),
      (Units.seconds(0), "0.00 ns"), (Units.perSecond(999), "999 ops/s"),
      (Units.perSecond(81_300), "81.3k ops/s"), (Units.perSecond(17_543_859), "17.5M ops/s"),
      (Units.bytes(1_000), "1000 bytes"), (Units.bytes(1_536), "1.50 KiB"),
      (Units.bytes(24 << 30), "24.0 GiB"),
      (Units.percent(0.054), "5%"), (Units.digits(9.996), "10.0"), (Units.digits(.infinity), "inf"),
    ])
  func units(text: String, expected: String) {
    #expect(text == expected)
  }
}
