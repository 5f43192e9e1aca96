import Foundation
import StockroomCore
import StockroomKitSupport
import TestFixtures
import Testing

@testable import BenchmarkKit

@Suite("Measurements") struct MeasurementTests {
  @Test("Quantiles are right to three percent, for times from a nanosecond to an hour")
  func quantiles() throws {
    var random = SeededRandom(seed: 3)
    for scale in [1.0, 1e3, 1e6, 1e9, 3.6e12] {
      let times = (0..<10_001).map { _ in
        UInt64(max(1, scale * exp2(Double.random(in: 0..<4, using: &random))))
      }
      var histogram = LatencyHistogram()
      for time in times { histogram.add(nanoseconds: time) }
      let sorted = times.sorted()
      for part in [0.5, 0.9, 0.99, 0.999, 1] {
        let exact = Double(sorted[Int((part * 10_001).rounded(.up)) - 1])
        let found = try #require(histogram.quantile(part))
        #expect(abs(found - exact) <= exact * 0.032 + 0.5)
      }
      #expect(histogram.maximum == sorted.last)
    }
    #expect(LatencyHistogram().quantile(0.5) == nil)
  }

  @Test("Histograms of several tasks add up to that of all")
  func merging() {
    var (all, odd, even) = (LatencyHistogram(), LatencyHistogram(), LatencyHistogram())
    for time in UInt64(1)...5_000 {
      all.add(nanoseconds: time * time)
      if time.isMultiple(of: 2) {
        even.add(nanoseconds: time * time)
      } else {
        odd.add(nanoseconds: time * time)
      }
    }
    #expect(odd.merging(even) == all)
    #expect(even.merging(odd) == all)
    #expect(all.merging(LatencyHistogram()) == all)
  }

  @Test("The time of the processors and the growth of memory are measured", .ownThreads)
  func usage() async {
    #if os(Linux)
      // In a separate process, where no other test frees memory.
      await #expect(processExitsWith: .success) {
        let usage = ResourceUsage()
        let bytes = [UInt8](unsafeUninitializedCapacity: 64 << 20) { buffer, count in
          for index in buffer.indices { buffer[index] = UInt8(truncatingIfNeeded: index) }
          count = buffer.count
        }
        #expect(bytes[1_000] == UInt8(truncatingIfNeeded: 1_000))
        #expect(usage.processorSeconds > 0)
        #expect((usage.peakMemory ?? 0) > 60 << 20)
        var rest = usage
        rest.startProcessorTime()
        #expect(rest.processorSeconds < usage.processorSeconds)
      }
    #endif
  }

  @Test("Memory that was freed before a measurement is counted again", .ownThreads)
  func memoryUsedAgain() async {
    #if os(Linux)
      // In a separate process, where no other test frees memory.
      await #expect(processExitsWith: .success) {
        // Small enough for the heap, which does not return freed memory below a live allocation to the system.
        var kept: [[UInt8]] = []
        func use() -> UInt64? {
          let usage = ResourceUsage()
          let pieces = (0..<8_000).map { [UInt8](repeating: UInt8(truncatingIfNeeded: $0), count: 8_000) }
          kept += pieces.suffix(1)
          return usage.peakMemory
        }
        for _ in 0..<2 { #expect((use() ?? 0) > 60_000_000) }
      }
    #endif
  }

  @Test("The disk space of files is that of their blocks, without holes")
  func disk() throws {
    let scratch = try ScratchDirectory(in: FileManager.default.temporaryDirectory, named: "disk-tests")
    defer { try? scratch.remove() }
    try FileManager.default.createDirectory(
      at: scratch.url.appending(path: "below"), withIntermediateDirectories: true)
    #expect(try bytesOnDisk(in: scratch.url) == 0)
    try Data(repeating: 1, count: 100_000).write(to: scratch.url.appending(path: "below/full"))
    let sparse = scratch.url.appending(path: "sparse")
    try Data().write(to: sparse)
    let handle = try FileHandle(forWritingTo: sparse)
    try handle.truncate(atOffset: 50_000_000)
    try handle.close()
    #expect((100_000..<200_000).contains(try bytesOnDisk(in: scratch.url)))
    #expect(throws: (any Error).self) { try bytesOnDisk(in: scratch.url.appending(path: "missing")) }
  }

  @Test("The frequencies of zipfian numbers follow Zipf's law")
  func zipfian() {
    let zipfian = Zipfian(count: 1_000)
    var random = SeededRandom(seed: 9)
    var counts = [Int](repeating: 0, count: 1_000)
    let draws = 200_000
    for _ in 0..<draws { counts[zipfian.next(&random)] += 1 }
    let zeta = (1...1_000).reduce(0.0) { $0 + pow(Double($1), -0.99) }
    for rank in [1, 2, 10, 100] {
      let expected = Double(draws) * pow(Double(rank), -0.99) / zeta
      #expect(abs(Double(counts[rank - 1]) - expected) < expected * 0.25)
    }
    var grown = Zipfian(count: 10)
    for _ in 0..<990 { grown.grow() }
    var (one, other) = (SeededRandom(seed: 1), SeededRandom(seed: 1))
    for _ in 0..<100 { #expect(grown.next(&one) == zipfian.next(&other)) }
    #expect(Zipfian(count: 1).next(&random) == 0)
  }

  @Test("The YCSB workloads have the published shares of operations")
  func shares() {
    func count(_ shares: YCSB.Shares) -> [String: Int] {
      var client = YCSB(shares, count: 100, seed: 5)
      var counts: [String: Int] = [:]
      for step in client.steps(10_000) {
        switch step {
        case .read: counts["read", default: 0] += 1
        case .write: counts["write", default: 0] += 1
        case .scan(_, let limit):
          counts["scan", default: 0] += 1
          #expect((1...100).contains(limit))
        case .modify: counts["modify", default: 0] += 1
        }
      }
      return counts
    }
    #expect((4_700...5_300).contains(count(.init(read: 50, update: 50))["read"] ?? 0))
    #expect((400...600).contains(count(.init(read: 95, insert: 5, readsLatest: true))["write"] ?? 0))
    #expect((9_400...9_600).contains(count(.init(insert: 5, scan: 95))["scan"] ?? 0))
    #expect((4_700...5_300).contains(count(.init(read: 50, modify: 50))["modify"] ?? 0))
  }
}
