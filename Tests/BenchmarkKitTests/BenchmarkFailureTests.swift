import Foundation
import StockroomCore
import Testing

@testable import BenchmarkKit

@Suite("Runs that fail or are cancelled") struct BenchmarkFailureTests {
  @Test(
    "A wrong result fails the workload that reads it",
    arguments: [
      (SpyEngine.Flaw.losesWrites, "write-one"), (.losesWrites, "write-concurrent-64"),
      (.losesWrites, "write-batch-10000"), (.losesWrites, "overwrite"), (.losesWrites, "ycsb-a"),
      (.losesWrites, "store-insert-one-1000"), (.losesWrites, "store-chain"),
      (.truncatesValues, "loop-insert-many"), (.truncatesValues, "write-one-beside-10000"),
      (.truncatesValues, "read-one"), (.truncatesValues, "read-many"), (.truncatesValues, "read-all"),
      (.answersNil, "read-one"), (.answersNil, "read-many"), (.answersNil, "read-all"),
      (.throwsOnRead, "read-one"), (.scansBackwards, "scan"), (.repeatsFirstPage, "scan"),
      (.miscounts, "count"),
      (.keepsRemoved, "remove-one"), (.keepsRemoved, "remove-batch"), (.truncatesValues, "ycsb-c"),
      (.scansBackwards, "ycsb-e"),
    ])
  func wrongResult(flaw: SpyEngine.Flaw, workload: String) async throws {
    let workloads = Workload.all.filter { $0.name == workload }
    let error = await #expect(throws: BenchmarkError.self) {
      try await runSmall(
        [
          BenchmarkSubject("correct") { _ in SpyEngine() },
          BenchmarkSubject("faulty") { _ in SpyEngine(flaw: flaw) },
        ], workloads: workloads)
    }
    #expect(error?.subject == "faulty")
    #expect(error?.workload == workload)
    #expect(error?.description.hasPrefix("faulty, \(workload): ") == true)
  }

  @Test("An engine that cannot be opened or closed ends the run, and the others are closed all the same")
  func openingAndClosing() async throws {
    let log = SpyEngine.Log()
    let good = BenchmarkSubject("good") { _ in SpyEngine("good", log: log) }
    let opening = await #expect(throws: BenchmarkError.self) {
      try await runSmall([good, BenchmarkSubject("bad") { _ in throw StorageError(.locked, "It is taken.") }])
    }
    #expect(opening?.description == "bad: opening the engine failed: locked: It is taken.")
    #expect(log.lines == ["good close"])

    let closing = await #expect(throws: BenchmarkError.self) {
      try await runSmall([good, BenchmarkSubject("bad") { _ in SpyEngine(flaw: .failsToClose) }])
    }
    #expect(closing?.description == "bad: closing the engine failed: io: The spy does not close.")

    let later = SpyEngine.Log()
    await #expect(throws: BenchmarkError.self) {
      try await runSmall([
        BenchmarkSubject("bad") { _ in SpyEngine(flaw: .failsToClose) },
        BenchmarkSubject("good") { _ in SpyEngine("good", log: later) },
      ])
    }
    #expect(later.lines.last == "good close")
  }

  @Test("A cancelled run throws CancellationError and leaves nothing behind")
  func cancellation() async throws {
    let log = SpyEngine.Log()
    let task = Task {
      try await runSmall([BenchmarkSubject("a") { _ in SpyEngine("a", log: log) }], repetitions: 1_000) {
        step in
        if step.repetition == 1 { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(log.lines.last == "a close")
  }

  @Test("A cancelled run leaves no entries on a server")
  func cancellationWithServer() async throws {
    let engine = SpyEngine("a", flaw: .heedsCancellation, capabilities: .networked)
    let task = Task {
      try await runSmall([BenchmarkSubject("a") { _ in engine }], repetitions: 1_000) { step in
        if step.repetition == 1 { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try await engine.allKeys() == [])
  }

  @Test("A workload that fails to reopen its engine leaves no entries on a server")
  func failedReopening() async throws {
    let engine = SpyEngine("a", capabilities: [.networked, .persistent])
    let openings = MutexProtected(0)
    let subject = BenchmarkSubject("a") { _ in
      let isSecond = openings.withLock {
        $0 += 1
        return $0 == 2
      }
      if isSecond { throw StorageError(.unavailable, "The spy does not open.") }
      return engine
    }
    let workload = try #require(Workload.named("open")?.first)
    await #expect(throws: BenchmarkError.self) { try await runSmall([subject], workloads: [workload]) }
    #expect(openings.withLock { $0 } == 3)
    #expect(try await engine.allKeys() == [])
  }

  @Test("An opening is not cancelled with its run, which ends after it")
  func cancellationWhileOpening() async throws {
    let (openings, opening) = AsyncStream<Void>.makeStream()
    let (permissions, permission) = AsyncStream<Void>.makeStream()
    let wasCancelled = MutexProtected<Bool?>(nil)
    let subject = BenchmarkSubject("a") { _ in
      opening.yield()
      for await _ in permissions { break }
      wasCancelled.withLock { $0 = Task.isCancelled }
      return SpyEngine()
    }
    let task = Task { try await runSmall([subject]) }
    for await _ in openings { break }
    task.cancel()
    permission.yield()
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(wasCancelled.withLock { $0 } == false)
  }

  @Test("The error of a directory that cannot be created names it and the cause")
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
