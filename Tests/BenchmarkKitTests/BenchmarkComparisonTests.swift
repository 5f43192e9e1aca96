import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

@testable import BenchmarkKit

@Suite("The comparison of two reports") struct BenchmarkComparisonTests {
  private func report(
    _ samples: [String: [Double]], entries: Int = 1_000, repetitions: Int = 5, durability: String = "full",
    processors: Double = 1
  ) -> BenchmarkReport {
    BenchmarkReport(
      BenchmarkConfiguration(
        entries: entries, repetitions: repetitions, workloads: Workload.named("read-one") ?? [],
        durability: durability),
      subjects: samples.keys.sorted()
    ) { subject, _ in
      (samples[subject] ?? []).map {
        Measurement(
          operations: 1_000, seconds: $0, processorSeconds: processors * $0, peakMemory: nil, stall: 0,
          latencies: LatencyHistogram())
      }
    }
  }

  private let usual = [1.0, 1.02, 0.99, 1.01, 1.0]

  @Test("A difference beyond the noise is a change, in both directions")
  func changes() throws {
    let before = report(["a": usual, "b": usual, "c": usual])
    let after = report(["a": usual.map { $0 * 1.5 }, "b": usual.map { $0 / 2 }, "c": usual])
    let comparison = BenchmarkComparison(before: before, after: after)
    #expect(comparison.changes.map(\.subject) == ["a", "b"])
    #expect(comparison.slower.map(\.subject) == ["a"])
    #expect(abs(comparison.changes[0].ratio - 1.5) < 1e-9)
    #expect(comparison.compared == 3)
    #expect(comparison.text.contains("slower  a, read-one"))
    #expect(comparison.text.contains("faster  b, read-one"))
    #expect(!comparison.text.contains("c, read-one"))
  }

  @Test(
    "A difference within the noise is not a change",
    arguments: [
      [1.05, 1.06, 1.08, 1.07, 1.06], [1.4, 1.5, 1.01, 1.6, 1.3], [1.2, 2.4, 1.5, 1.45, 1.6], [1.0],
    ])
  func noise(samples: [Double]) {
    let comparison = BenchmarkComparison(before: report(["a": usual]), after: report(["a": samples]))
    #expect(comparison.changes == [])
    #expect(comparison.text == "No significant change in 1 measurements.\n")
  }

  @Test("A change of half of the measurements is a change")
  func changeOfHalf() {
    func report(factor: Double) -> BenchmarkReport {
      BenchmarkReport(
        BenchmarkConfiguration(
          entries: 1_000, repetitions: 5,
          workloads: ["read-one", "read-all"].flatMap { Workload.named($0) ?? [] }, durability: "full"),
        subjects: ["a"]
      ) { _, workload in
        usual.map {
          Measurement(
            operations: 1_000, seconds: workload == "read-all" ? $0 * factor : $0,
            processorSeconds: workload == "read-all" ? $0 * factor : $0,
            peakMemory: nil, stall: 0, latencies: LatencyHistogram())
        }
      }
    }
    let comparison = BenchmarkComparison(before: report(factor: 1), after: report(factor: 10))
    #expect(comparison.slower.map(\.workload) == ["read-all"])
  }

  @Test("Of a single repetition the comparison says that a change may be chance")
  func oneRepetition() {
    let (five, one) = (report(["a": usual]), report(["a": [1.5]], repetitions: 1))
    for comparison in [BenchmarkComparison(before: five, after: one), .init(before: one, after: five)] {
      #expect(comparison.text.contains("! Repetitions: one alone has no spread"))
    }
    #expect(BenchmarkComparison(before: five, after: five).caveats == [])
  }

  @Test("Measurements with other records are not compared, and other differences are caveats")
  func incomparable() {
    let before = report(["a": usual, "gone": usual])
    let new = BenchmarkComparison(
      before: before, after: report(["a": usual, "new": usual], durability: "process"))
    #expect(new.incomparable == ["new, read-one", "gone, read-one"])
    #expect(new.caveats == ["Durability: full before, process now."])
    let other = BenchmarkComparison(before: before, after: report(["a": usual], entries: 5))
    #expect(other.compared == 0)
    #expect(other.incomparable == ["a, read-one", "gone, read-one"])
  }

  /// Simulated times of the standard workloads for three engines, on a machine that other processes use too.
  ///
  /// - Parameters:
  ///   - run: The seed of the random numbers.
  ///   - factor: The slowdown of a subject in a workload.
  private func noisyReport(run: UInt64, factor: (String, Workload) -> Double = { _, _ in 1 })
    -> BenchmarkReport
  {
    var random = SeededRandom(scrambling: run)
    // Other processes keep the disk busy for all of a run, and the processors for some of its measurements.
    let disk = 1 + Double(random.next(upTo: 300)) / 100
    return BenchmarkReport(BenchmarkConfiguration(), subjects: ["a", "b", "c"]) { subject, name in
      let workload = Workload.standard.first { $0.name == name }
      return (0..<5).map { _ in
        let isNoisy = random.once(in: 8)
        let processor = 0.01 * (1 + Double(random.next(upTo: isNoisy ? 50 : 10)) / 100)
        let wait = waits(name) ? 0.05 * disk * (1 + Double(random.next(upTo: 20)) / 100) : 0
        let scale = workload.map { factor(subject, $0) } ?? 1
        return Measurement(
          operations: 1_000, seconds: scale * (processor + wait), processorSeconds: scale * processor,
          peakMemory: nil,
          stall: 0, latencies: LatencyHistogram())
      }
    }
  }

  private func waits(_ workload: String) -> Bool {
    ["write-one", "write-concurrent-64", "overwrite", "remove-one"].contains(workload)
  }

  @Test("Nine of ten runs of the same code report no change, while other processes use processors and disk")
  func sameCode() {
    let quiet = (UInt64(0)..<200).count { run in
      BenchmarkComparison(before: noisyReport(run: 2 * run), after: noisyReport(run: 2 * run + 1)).changes
        .isEmpty
    }
    #expect(quiet >= 190)
  }

  @Test(
    "In the same noise a slowdown of 30 % is reported, of a whole engine or of one workload")
  func slowdown() {
    var found = (all: 0, one: 0, falsely: 0)
    for run in UInt64(0)..<100 {
      let before = noisyReport(run: 2 * run)
      let all = BenchmarkComparison(
        before: before, after: noisyReport(run: 2 * run + 1) { subject, _ in subject == "b" ? 1.3 : 1 })
      if all.changes.contains(where: { $0.subject != "b" }) { found.falsely += 1 }
      if all.slower.count(where: { $0.subject == "b" }) >= 3 { found.all += 1 }
      let one = BenchmarkComparison(
        before: before,
        after: noisyReport(run: 2 * run + 1) { $0 == "c" && $1.name == "read-all" ? 1.3 : 1 })
      if one.slower.contains(where: { $0.subject == "c" && $0.workload == "read-all" }) { found.one += 1 }
    }
    #expect(found.all >= 95 && found.one >= 65 && found.falsely <= 5, "\(found)")
  }

  @Test("A slower disk is a caveat and not a change; a slowdown of all computing workloads is a change")
  func shared() {
    let before = noisyReport(run: 1)
    let disk = BenchmarkComparison(before: before, after: noisyReport(run: 1) { waits($1.name) ? 3 : 1 })
    #expect(disk.changes == [])
    #expect(
      disk.text
        == "! Disk: with most engines, workloads that wait for it take 3.00 times as long as before. The comparison "
        + "corrects for that.\nNo significant change in 33 measurements.\n")
    let processors = BenchmarkComparison(
      before: before, after: noisyReport(run: 1) { waits($1.name) ? 1 : 3 })
    #expect(processors.slower.count == 3 * 7)
  }
  /// A comparison in which the times of three engines grow by the factor `disk`, and those of a fourth by `other`.
  private func comparison(disk: Double, other: Double) -> BenchmarkComparison {
    let tight = [1.0, 1.001, 1.002, 1.001, 1.0]
    func waiting(_ disk: Double, _ other: Double) -> BenchmarkReport {
      let slow = tight.map { $0 * disk }
      return report(
        ["a": slow, "b": slow, "c": slow, "other": tight.map { $0 * other }], processors: 0.1)
    }
    return BenchmarkComparison(before: waiting(1, 1), after: waiting(disk, other))
  }

  @Test("An engine that a slower disk slows down less than the others is not slower")
  func lessAffected() {
    let comparison = comparison(disk: 3, other: 2)
    #expect(comparison.changes == [])
    #expect(comparison.caveats.contains { $0.hasPrefix("Disk: ") })
  }

  @Test("Three percent are no change when the disk has become faster")
  func unaffected() {
    let comparison = comparison(disk: 1.0 / 3, other: 1.03)
    #expect(comparison.changes == [])
    #expect(comparison.caveats.contains { $0.hasPrefix("Disk: ") })
  }

  @Test("A slowdown beyond that of the disk is reported with the times as they were measured")
  func moreAffected() {
    let slower = comparison(disk: 3, other: 6).slower
    #expect(slower.map(\.subject) == ["other"])
    #expect(slower.allSatisfy { abs($0.ratio - 6) < 1e-9 })
  }
}
