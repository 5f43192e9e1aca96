import Foundation
import StockroomEngines
import Testing

@testable import BenchmarkKit
@testable import StockroomCLI

@Suite("The other process of a benchmark") struct BenchmarkWorkerTests {
  /// The engines that several processes may have open.
  static let names = ["files", "sqlite", "lmdb"]

  private func follow(_ name: String, _ worker: BenchmarkWorker?) async throws -> BenchmarkReport {
    let engine = try #require(try EngineCatalogue.named([name]).first)
    let subject = BenchmarkSubject(name, worker: worker) { try engine.open($0, .process) }
    let configuration = BenchmarkConfiguration(repetitions: 1, workloads: [.follow(among: 100)])
    return try await BenchmarkRunner(configuration: configuration).run([subject])
  }

  @Test("A store shows what the other process writes", arguments: names)
  func follows(name: String) async throws {
    let worker = BenchmarkWorker(
      executable: CommandLineTool.url, arguments: ["serve", "benchmarks", name, "--durability", "process"])
    let report = try await follow(name, worker)
    #expect(report.results.first?.operations == 50)
  }

  @Test("Without a program to open the engine the workload is left out")
  func noWorker() async throws {
    #expect(try await follow("lmdb", nil).results.isEmpty)
  }

  @Test(
    "A program that is no worker, or fails, is in the error",
    arguments: [
      ("echo hello; cat", "so it does not call BenchmarkWorker.serve(makeEngine:)"),
      ("echo no place >&2; exit 3", "exited with status 3: no place"),
      (#"read request; echo '{"failure":"no room"}'; cat"#, "in the worker process: no room"),
    ])
  func anotherProgram(script: String, message: String) async throws {
    let worker = BenchmarkWorker(executable: URL(filePath: "/bin/sh"), arguments: ["-c", script])
    await #expect {
      try await follow("lmdb", worker)
    } throws: {
      "\($0)".hasPrefix("lmdb, follow-100: ") && "\($0)".contains(message)
    }
  }
}
