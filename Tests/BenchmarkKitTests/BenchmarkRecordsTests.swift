import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

@testable import BenchmarkKit

@Suite("Records") struct BenchmarkRecordsTests {
  private func records(entries: Int = 2_000, valueSize: Int = 100, seed: UInt64 = 1) -> BenchmarkRecords {
    BenchmarkRecords(RecordSet(entries: entries, valueSize: valueSize, seed: seed))
  }

  @Test("The generator returns the published sequence of SplitMix64")
  func splitMix64() {
    var random = SeededRandom(seed: 1_234_567)
    #expect(random.next() == 6_457_827_717_110_365_317)
    #expect(random.next() == 3_203_168_211_198_807_973)
  }

  @Test("A seed generates the same records every time, and another seed generates others")
  func reproducible() {
    let first = records()
    let second = records()
    let other = records(seed: 2)
    #expect(first.all.map(\.key) == second.all.map(\.key))
    #expect(first.all.map(\.data) == second.all.map(\.data))
    #expect(first.shuffled == second.shuffled)
    #expect(first.all.map(\.key) != other.all.map(\.key))
    #expect(first.all.map(\.data) != other.all.map(\.data))
  }

  @Test("Keys are valid, each is there once, half are hashes and half are paths")
  func keys() throws {
    let keys = records().all.map(\.key)
    try keys.validate()
    #expect(Set(keys).count == 2_000)
    #expect(keys.count { $0.value.hasPrefix("users/") } == 1_000)
  }

  @Test("Values vary around the requested size")
  func values() {
    let sizes = records().all.map(\.data.count)
    #expect(sizes.min() == 50)
    #expect(sizes.max() == 150)
    #expect(abs(sizes.reduce(0, +) / sizes.count - 100) <= 3)
    #expect(records(entries: 10, valueSize: 0).all.allSatisfy { $0.data.isEmpty })
  }

  @Test("The order of reading has every record once")
  func shuffled() {
    #expect(records().shuffled.sorted() == Array(0..<2_000))
    #expect(records().shuffled != Array(0..<2_000))
  }
}
