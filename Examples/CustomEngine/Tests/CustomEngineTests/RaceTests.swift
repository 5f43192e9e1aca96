import BenchmarkKit
import Foundation
import Testing

@testable import custom_engine_bench

@Test("Every workload of a benchmark runs on the engine with correct results")
func race() async throws {
  let report = try await Race.report(entries: 20)
  #expect(report.subjects == ["JSON", "SQLite"])
  #expect(report.results.count == 2 * report.workloads.count && !report.workloads.isEmpty)
}

#if os(Linux)
  // On Apple's systems, the temporary directory does not depend on TMPDIR.
  @Test("A race that is interrupted leaves no files", .timeLimit(.minutes(60)))
  func interruptedRace() async throws {
    let directory = FileManager.default.temporaryDirectory.appending(path: "race-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    func contents() throws -> [String] {
      try FileManager.default.contentsOfDirectory(atPath: directory.path)
    }

    // The program and the tests are built into the same directory.
    let products = URL(filePath: CommandLine.arguments[0]).resolvingSymlinksInPath()
      .deletingLastPathComponent()
    let process = Process()
    process.executableURL = products.appending(path: "custom-engine-bench")
    process.environment = ProcessInfo.processInfo.environment.merging(["TMPDIR": directory.path]) { $1 }
    try process.run()
    defer { if process.isRunning { process.terminate() } }
    while try contents().isEmpty, process.isRunning { try await Task.sleep(for: .milliseconds(1)) }
    process.interrupt()
    while process.isRunning { try await Task.sleep(for: .milliseconds(1)) }
    #expect(process.terminationReason == .exit && process.terminationStatus == 128 + SIGINT)
    #expect(try contents() == [])
  }
#endif
