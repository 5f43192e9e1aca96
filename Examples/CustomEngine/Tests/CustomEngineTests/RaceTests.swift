import BenchmarkKit
import Testing

@testable import custom_engine_bench

@Test("The engine takes part in every workload of a benchmark, and answers right")
func race() async throws {
  let report = try await Race.report(entries: 20)
  #expect(report.subjects == ["JSON", "SQLite"])
  #expect(report.results.count == 2 * report.workloads.count && !report.workloads.isEmpty)
}
