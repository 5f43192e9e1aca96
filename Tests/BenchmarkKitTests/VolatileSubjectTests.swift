import Foundation
import StockroomMemory
import Testing

@testable import BenchmarkKit

@Suite("Volatile engines in reports") struct VolatileSubjectTests {
  /// Subjects of which each takes a tenth of the time of the next one.
  private func report(_ subjects: [String], volatile: [String]) throws -> BenchmarkReport {
    BenchmarkReport(
      BenchmarkConfiguration(repetitions: 1, workloads: try #require(Workload.named("count"))),
      subjects: subjects, volatile: volatile
    ) { subject, _ in
      let seconds = pow(10, Double(subjects.firstIndex(of: subject) ?? 0))
      return [
        Measurement(
          operations: 1, seconds: seconds, processorSeconds: 1, peakMemory: nil, stall: nil,
          latencies: LatencyHistogram())
      ]
    }
  }

  @Test("A volatile engine is never the fastest beside persistent ones, and every report says so")
  func beside() throws {
    let report = try report(["Memory", "SQLite", "LMDB"], volatile: ["Memory"])
    #expect(report.text.contains("1.00 s  * 10.0 s"))
    #expect(!report.text.contains("* 1.00 s"))
    #expect(report.markdown.contains("| count | 1.00 s | **10.0 s** |"))
    let sentence = "Not ranked, since what is stored there ends with the process: Memory."
    for text in [report.text, report.markdown, report.html] { #expect(text.contains(sentence)) }
    #expect(report.headlinesMarkdown(chart: "").contains("| count | 1.00 s | **10.0 s** |"))
    #expect(report.headlinesMarkdown(chart: "").contains("In bold: the fastest except Memory;"))
    #expect(report.page(command: "", headlines: "").contains("| count | 1.00 s | **10.0 s** |"))
    #expect(try BenchmarkReport(json: report.json()) == report)
  }

  @Test("A tie is one with the fastest of the persistent engines")
  func ties() throws {
    let seconds = ["Memory": [1.0, 1.2], "SQLite": [1.1, 9.2], "LMDB": [9.0, 9.5]]
    let report = BenchmarkReport(
      BenchmarkConfiguration(repetitions: 2, workloads: try #require(Workload.named("count"))),
      subjects: ["Memory", "SQLite", "LMDB"], volatile: ["Memory"]
    ) { subject, _ in
      (seconds[subject] ?? []).map {
        Measurement(
          operations: 100, seconds: $0, processorSeconds: 1, peakMemory: nil, stall: nil,
          latencies: LatencyHistogram())
      }
    }
    // SQLite overlaps with Memory and is the fastest of the others; LMDB overlaps with SQLite only.
    let row = try #require(report.text.split(separator: "\n").first { $0.hasPrefix("count ") })
    #expect(row.contains("* 51.5 ms") && row.contains("≈ 92.5 ms"))
    let chart = try #require(report.workloads.first.flatMap { report.throughputChart($0) }).svg
    #expect(chart.components(separatedBy: "≈").count == 2)
    #expect(report.html.contains("<td>≈ 92.5 ms</td>"))
    #expect(!report.html.contains("<td>≈ 51.5 ms</td>"))
  }

  @Test("Volatile engines are ranked among themselves")
  func alone() throws {
    let report = try report(["a", "b"], volatile: ["a", "b"])
    #expect(report.markdown.contains("| count | **1.00 s** | 10.0 s |"))
    #expect(!report.text.contains("Not ranked"))
    #expect(report.headlinesMarkdown(chart: "").contains("In bold: the fastest;"))
  }

  @Test("An engine without the capability persistent is volatile")
  func capabilities() async throws {
    let scratch = try ScratchDirectory(in: FileManager.default.temporaryDirectory, named: "volatile-tests")
    defer { try? scratch.remove() }
    let configuration = BenchmarkConfiguration(
      entries: 10, valueSize: 10, repetitions: 1, workloads: try #require(Workload.named("read-one")),
      directory: scratch.url)
    let report = try await BenchmarkRunner(configuration: configuration).run([
      BenchmarkSubject("Memory") { _ in MemoryStorageEngine() },
      BenchmarkSubject("Kept") { _ in SpyEngine(capabilities: .persistent) },
    ])
    #expect(report.volatile == ["Memory"])
  }
}
