import Foundation
import StockroomCore
import Testing

@testable import BenchmarkKit

@Suite("The runner") struct BenchmarkRunnerTests {
  /// A small run below a directory of its own, which must be empty afterwards, whatever happens.
  private func run(
    _ subjects: [BenchmarkSubject], entries: Int = 250, repetitions: Int = 2,
    workloads: [Workload] = Workload.all, progress: @Sendable (BenchmarkProgress) -> Void = { _ in }
  ) async throws -> BenchmarkReport {
    let scratch = try ScratchDirectory(in: FileManager.default.temporaryDirectory, named: "runner-tests")
    let result: Result<BenchmarkReport, any Error>
    do {
      let configuration = BenchmarkConfiguration(
        entries: entries, valueSize: 20, repetitions: repetitions, workloads: workloads,
        directory: scratch.url)
      result = .success(
        try await BenchmarkRunner(configuration: configuration).run(subjects, progress: progress))
    } catch {
      result = .failure(error)
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.url.path()) == [])
    try scratch.remove()
    return try result.get()
  }

  @Test("Every workload gives a sample for every repetition of every subject")
  func complete() async throws {
    let report = try await run([
      BenchmarkSubject("a") { _ in SpyEngine() }, BenchmarkSubject("b") { _ in SpyEngine() },
    ])
    #expect(report.subjects == ["a", "b"])
    #expect(report.workloads.map(\.name) == Workload.all.map(\.name))
    #expect(report.results.count == 2 * Workload.all.count)
    #expect(report.results.allSatisfy { $0.samples.count == 2 && $0.seconds.minimum > 0 })
  }

  @Test("A single entry is enough for every workload")
  func oneEntry() async throws {
    let report = try await run([BenchmarkSubject("a") { _ in SpyEngine() }], entries: 1, repetitions: 1)
    #expect(report.results.count == Workload.all.count)
  }

  @Test("Workloads run alone as well as in any order", arguments: Workload.all.map(\.name))
  func alone(name: String) async throws {
    let workload = try #require(Workload.all.first { $0.name == name })
    let subject = BenchmarkSubject("a") { _ in SpyEngine() }
    #expect(try await run([subject], workloads: [workload]).results.count == 1)
    _ = try await run([subject], workloads: Workload.all.reversed())
  }

  @Test("Subjects take turns at each workload, beginning with another one, and the warm-up is not counted")
  func interleaving() async throws {
    let log = SpyEngine.Log()
    let workloads = ["first", "second"].map { name in
      Workload(name, "Writes.", startsFrom: .nothing, leaves: .nothing, operations: { _ in 1 }) { engine, _ in
        try await engine.write(Data(), key: CacheKey(name))
        return {}
      }
    }
    let subjects = ["a", "b", "c"].map { name in BenchmarkSubject(name) { _ in SpyEngine(name, log: log) } }
    let report = try await run(subjects, repetitions: 2, workloads: workloads)

    let turns = log.lines.filter { $0.hasSuffix("write") }.map { $0.prefix(1) }.joined()
    #expect(turns == "abcbca" + "acbbac" + "cababc")
    #expect(log.lines.count { $0.hasSuffix("close") } == 9)
    #expect(report.results.allSatisfy { $0.samples.count == 2 })
  }

  @Test("Each subject gets an empty directory of its own for each repetition")
  func directories() async throws {
    let seen = Guarded<[URL]>([])
    let subjects = ["a", "b"].map { name in
      BenchmarkSubject(name) { directory in
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path()) == [])
        try Data("left behind".utf8).write(to: directory.appending(path: "file"))
        seen.withLock { $0.append(directory) }
        return SpyEngine()
      }
    }
    _ = try await run(subjects, repetitions: 2)
    #expect(Set(seen.withLock { $0 }).count == 6)
  }

  @Test("Progress names each measurement and grows from nothing towards all")
  func progress() async throws {
    let reported = Guarded<[BenchmarkProgress]>([])
    _ = try await run([BenchmarkSubject("a") { _ in SpyEngine() }], repetitions: 1) { progress in
      reported.withLock { $0.append(progress) }
    }
    let steps = reported.withLock { $0 }
    #expect(steps.count == 2 * Workload.all.count)
    #expect(steps.first?.fraction == 0)
    #expect(steps.map(\.fraction) == steps.map(\.fraction).sorted())
    #expect(steps.first?.description == "0% warm-up: a, write-one")
    #expect(steps.last?.description.hasSuffix("% repetition 1 of 1: a, remove") == true)
  }

  @Test(
    "An engine that lies is convicted by the workload that sees it",
    arguments: [
      (SpyEngine.Flaw.losesWrites, "write-one"), (.losesWrites, "write-concurrent"),
      (.losesWrites, "write-batch"),
      (.truncatesValues, "read-one"), (.truncatesValues, "read-many"), (.truncatesValues, "read-all"),
      (.answersNil, "read-one"), (.answersNil, "read-many"), (.answersNil, "read-all"),
      (.throwsOnRead, "read-one"), (.scansBackwards, "scan"), (.repeatsFirstPage, "scan"),
      (.miscounts, "count"),
      (.keepsRemoved, "remove"),
    ])
  func lies(flaw: SpyEngine.Flaw, workload: String) async throws {
    let workloads = Workload.all.filter { $0.name == workload }
    let error = await #expect(throws: BenchmarkError.self) {
      try await run(
        [
          BenchmarkSubject("honest") { _ in SpyEngine() },
          BenchmarkSubject("liar") { _ in SpyEngine(flaw: flaw) },
        ], workloads: workloads)
    }
    #expect(error?.subject == "liar")
    #expect(error?.workload == workload)
    #expect(error?.description.hasPrefix("liar, \(workload): ") == true)
  }

  @Test("An engine that cannot be opened or closed ends the run, and the others are closed all the same")
  func openingAndClosing() async throws {
    let log = SpyEngine.Log()
    let good = BenchmarkSubject("good") { _ in SpyEngine("good", log: log) }
    let opening = await #expect(throws: BenchmarkError.self) {
      try await run([good, BenchmarkSubject("bad") { _ in throw StorageError(.locked, "It is taken.") }])
    }
    #expect(opening?.description == "bad: opening the engine failed: locked: It is taken.")
    #expect(log.lines == ["good close"])

    let closing = await #expect(throws: BenchmarkError.self) {
      try await run([good, BenchmarkSubject("bad") { _ in SpyEngine(flaw: .failsToClose) }])
    }
    #expect(closing?.description == "bad: closing the engine failed: io: The spy does not close.")
  }

  @Test("A cancelled run throws CancellationError and leaves nothing behind")
  func cancellation() async throws {
    let log = SpyEngine.Log()
    let task = Task {
      try await run([BenchmarkSubject("a") { _ in SpyEngine("a", log: log) }], repetitions: 1_000) { step in
        if step.repetition == 1 { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(log.lines.last == "a close")
  }

  @Test("A directory that cannot be made is named with the cause")
  func unusableDirectory() async throws {
    let configuration = BenchmarkConfiguration(directory: URL(filePath: "/dev/null/x"))
    let error = await #expect(throws: StorageError.self) {
      try await BenchmarkRunner(configuration: configuration).run([BenchmarkSubject("a") { _ in SpyEngine() }]
      )
    }
    #expect(error?.description.contains("/dev/null/x") == true)
    #expect(error?.description.contains("Not a directory") == true)
  }
}
