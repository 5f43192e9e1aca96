import Testing

@testable import BenchmarkKit

@Suite("The comparison of two reports") struct BenchmarkComparisonTests {
  private func report(
    _ samples: [String: [Double]], entries: Int = 1_000, durability: String = "full"
  ) -> BenchmarkReport {
    BenchmarkReport(
      BenchmarkConfiguration(
        entries: entries, workloads: Workload.named("read-one") ?? [], durability: durability),
      subjects: samples.keys.sorted()
    ) { subject, _ in
      (samples[subject] ?? []).map {
        Measurement(
          operations: 1_000, seconds: $0, processorSeconds: $0, peakMemory: nil, stall: 0,
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
    "A difference that may be chance is none",
    arguments: [
      [1.05, 1.06, 1.08, 1.07, 1.06], [1.4, 1.5, 1.01, 1.6, 1.3], [1.2, 2.4, 1.3, 1.25, 1.6], [1.0],
    ])
  func noise(samples: [Double]) {
    let comparison = BenchmarkComparison(before: report(["a": usual]), after: report(["a": samples]))
    #expect(comparison.changes == [])
    #expect(comparison.text == "No change beyond the noise in 1 measurements.\n")
  }

  @Test("What was not measured alike is not compared, and what else differs is said")
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
}
