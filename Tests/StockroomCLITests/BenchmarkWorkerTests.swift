import Foundation
import StockroomCore
import StockroomEngines
import Testing

@testable import BenchmarkKit
@testable import StockroomCLI

@Suite("The other process of a benchmark") struct BenchmarkWorkerTests {
  /// The engines that several processes may have open.
  static let names = ["files", "sqlite", "lmdb"]

  private func follow(_ name: String, _ worker: BenchmarkWorker?) async throws -> BenchmarkReport {
    let engine = try #require(try EngineCatalog.named([name]).first)
    let subject = BenchmarkSubject(name, worker: worker) { try await engine.open($0, .process) }
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

  @Test(
    "A subscriber receives the changes of its own process and of another one that writes meanwhile",
    arguments: names)
  func bothProcesses(name: String) async throws {
    try await withTemporaryDirectory { directory in
      let engine = try await #require(try EngineCatalog.named([name]).first).open(directory, .process)
      let changes = try await engine.changes()
      let subscriber = Task { await changes.reduce(into: []) { $0.append($1) } }
      // Before the worker process starts.
      for number in 0..<50 { try await engine.write(Data(), key: CacheKey(verbatim: "first \(number)")) }
      let worker = try await BenchmarkWorkerProcess(
        BenchmarkWorker(
          executable: CommandLineTool.url,
          arguments: ["serve", "benchmarks", name, "--durability", "process"]),
        directory: directory)
      for number in 0..<50 {
        try worker.startWriting(Data(), key: CacheKey(verbatim: "other \(number)"))
        try await engine.write(Data(), key: CacheKey(verbatim: "own \(number)"))
        try await worker.waitForAnswer()
      }
      try await worker.end()
      let written = Set(try await engine.allKeys())
      #expect(written.count == 150)
      try await engine.close()
      var (reported, isEverything) = (Set<CacheKey>(), false)
      for change in await subscriber.value {
        if case .keys(let keys) = change { reported.formUnion(keys) } else { isEverything = true }
      }
      #expect(isEverything || reported == written)
    }
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
