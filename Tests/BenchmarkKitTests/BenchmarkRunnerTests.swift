import Foundation
import StockroomCore
import StockroomMemory
import TestFixtures
import Testing

@testable import BenchmarkKit

@Suite("The runner") struct BenchmarkRunnerTests {
  @Test("Every workload has a sample for every repetition of every subject")
  func complete() async throws {
    let report = try await runSmall([
      BenchmarkSubject("a") { _ in SpyEngine() }, BenchmarkSubject("b") { _ in SpyEngine() },
    ])
    #expect(report.subjects == ["a", "b"])
    #expect(report.workloads.map(\.name) == Workload.standard.map(\.name))
    #expect(report.results.count == 2 * Workload.standard.count)
    #expect(report.results.allSatisfy { $0.samples.count == 2 && $0.seconds.minimum > 0 })
  }

  @Test("A single entry is enough for every workload")
  func oneEntry() async throws {
    let report = try await runSmall([BenchmarkSubject("a") { _ in SpyEngine() }], entries: 1, repetitions: 1)
    #expect(report.results.count == Workload.standard.count)
  }

  /// The workloads with fewer than 100,000 entries, which take little time in a debug build.
  static let quick = Workload.all.filter { ($0.entries ?? 0) < 100_000 && !$0.name.hasSuffix("-100000") }

  /// A subject whose engine keeps its entries when its directory is opened again.
  private func persistent(_ name: String) -> BenchmarkSubject {
    let spies = MutexProtected<[URL: SpyEngine]>([:])
    return BenchmarkSubject(name) { directory in
      spies.withLock { spies in
        let spy = spies[directory] ?? SpyEngine(capabilities: .persistent)
        spies[directory] = spy
        return spy
      }
    }
  }

  @Test("Every workload runs alone", arguments: quick.map(\.name))
  func alone(name: String) async throws {
    let workload = try #require(Workload.all.first { $0.name == name })
    let subject =
      workload.needs.isDisjoint(with: [.transactions, .changeFeed])
      ? persistent("a") : BenchmarkSubject("a") { _ in MemoryStorageEngine() }
    let report = try await runSmall([subject], repetitions: 1, workloads: [workload])
    let result = try #require(report.results.first)
    #expect(report.results.count == 1)
    #expect(result.seconds.minimum > 0 && result.operations > 0 && result.processorSecondsPerOperation > 0)
    #expect((result.latency?.p50 ?? 0) > 0)
  }

  @Test("Workloads run in any order")
  func anyOrder() async throws {
    let subject = BenchmarkSubject("a") { _ in SpyEngine() }
    for workloads in [Workload.standard.reversed(), Workload.standard.shuffled()] {
      #expect(try await runSmall([subject], workloads: workloads).results.count == workloads.count)
    }
  }

  @Test("An engine without a capability that a workload requires has no result there")
  func needs() async throws {
    let open = try #require(Workload.named("open"))
    let report = try await runSmall(
      [
        BenchmarkSubject("forgets") { _ in SpyEngine() },
        persistent("keeps"),
      ], workloads: open)
    #expect(report.results.map(\.subject) == ["keeps"])
    #expect(report.standing(of: "forgets", in: "open") == nil)
  }

  @Test("A subject is measured in the workloads that it names, and progress counts no others")
  func namedWorkloads() async throws {
    let fractions = MutexProtected<[Double]>([])
    let report = try await runSmall(
      [
        BenchmarkSubject("all") { _ in SpyEngine() },
        BenchmarkSubject("some", workloads: ["count", "read-one"]) { _ in SpyEngine() },
      ],
      workloads: try ["write-one", "read-one", "count"].flatMap { try #require(Workload.named($0)) }
    ) { progress in
      fractions.withLock { $0.append(progress.fraction) }
    }
    #expect(report.results.map(\.subject) == ["all", "all", "some", "all", "some"])
    #expect(report.result(of: "some", in: "write-one") == nil)
    #expect(fractions.withLock { $0 } == (0..<15).map { Double($0) / 15 })
  }

  @Test("A call that blocks the cooperative pool is reported as a stall", .ownThreads)
  func stall() async throws {
    // In a separate process: in this one, the other tests need the threads that it blocks.
    await #expect(processExitsWith: .success) {
      let processors = ProcessInfo.processInfo.activeProcessorCount
      let arrivals = MutexProtected(0)
      // Each call waits for as many calls as there are processors, so that all threads of the pool are blocked at the
      // same time.
      let blockThread: @Sendable () -> Void = {
        let number = arrivals.withLock {
          $0 += 1
          return $0
        }
        let last = (number + processors - 1) / processors * processors
        while arrivals.withLock({ $0 < last }) { usleep(1_000) }
        usleep(60_000)
      }
      let workload = Workload("blocks", "Waits 60 ms.", startsFrom: .nothing, leaves: .nothing) { run in
        try await run.measure(operations: 1) { latencies in
          await withTaskGroup { group in
            for _ in 0..<processors { group.addTask { blockThread() } }
          }
          latencies.record()
        }
      }
      var stall = 0.0
      // On a busy machine, several attempts may be necessary.
      for _ in 0..<100 where stall <= 0.03 {
        let report = try await runSmall([BenchmarkSubject("a") { _ in SpyEngine() }], workloads: [workload])
        let blocking = try #require(report.result(of: "a", in: "blocks"))
        stall = max(stall, blocking.stall ?? 0)
        #expect(try #require(blocking.latency).p50 > 0.05)
      }
      #expect(stall > 0.03)
    }
  }

  @Test("In each workload the order of the subjects rotates, and the warm-up is not counted")
  func interleaving() async throws {
    let log = SpyEngine.Log()
    let workloads = ["first", "second"].map { name in
      Workload(name, "Writes.", startsFrom: .nothing, leaves: .nothing) { run in
        try await run.measure(operations: 1) { _ in try await run.engine.write(Data(), key: CacheKey(name)) }
      }
    }
    let subjects = ["a", "b", "c"].map { name in BenchmarkSubject(name) { _ in SpyEngine(name, log: log) } }
    let report = try await runSmall(subjects, repetitions: 2, workloads: workloads)

    let turns = log.lines.filter { $0.hasSuffix("write") }.map { $0.prefix(1) }.joined()
    #expect(turns == "abcbca" + "baccba" + "cababc")
    #expect(log.lines.count { $0.hasSuffix("close") } == 9)
    #expect(report.results.allSatisfy { $0.samples.count == 2 })
  }

  @Test("Each subject is measured first equally often", arguments: 1...6)
  func fairTurns(count: Int) {
    let subjects = Array(0..<count)
    for turn in 0..<4 {
      let begins = (0..<2 * count).compactMap {
        subjects.rotated(by: $0 + turn, reversed: !$0.isMultiple(of: 2)).first
      }
      #expect(begins.sorted() == (subjects + subjects).sorted())
    }
    #expect([Int]().rotated(by: 3, reversed: true) == [])
  }

  @Test("Each subject gets an empty directory of its own for each repetition")
  func directories() async throws {
    let seen = MutexProtected<[URL]>([])
    let subjects = ["a", "b"].map { name in
      BenchmarkSubject(name) { directory in
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path()) == [])
        try Data("left behind".utf8).write(to: directory.appending(path: "file"))
        seen.withLock { $0.append(directory) }
        return SpyEngine()
      }
    }
    _ = try await runSmall(subjects, repetitions: 2)
    #expect(Set(seen.withLock { $0 }).count == 6)
  }

  @Test("Progress names each measurement and increases from 0 to 1")
  func progress() async throws {
    let reported = MutexProtected<[BenchmarkProgress]>([])
    _ = try await runSmall([BenchmarkSubject("a") { _ in SpyEngine() }], repetitions: 1) { progress in
      reported.withLock { $0.append(progress) }
    }
    let steps = reported.withLock { $0 }
    #expect(steps.count == 2 * Workload.standard.count)
    #expect(steps.first?.fraction == 0)
    #expect(steps.map(\.fraction) == steps.map(\.fraction).sorted())
    #expect(steps.first?.description == "0%, warm-up: a, write-one")
    #expect(steps.last?.description.hasSuffix(", repetition 1 of 1: a, remove-one") == true)
  }

  @Test("The entries of an engine on a server are removed after each repetition")
  func entriesOnServer() async throws {
    let spy = SpyEngine(capabilities: .networked)
    _ = try await runSmall([BenchmarkSubject("a") { _ in spy }], repetitions: 1)
    #expect(try await spy.keyCount() == 0)
  }

  @Test("The objects of a store's workloads have the size in the report")
  func sizeOfItems() async throws {
    let workload = try #require(Workload.named("load-10000-objects")?.first)
    let spy = SpyEngine()
    _ = try await runSmall([BenchmarkSubject("spy") { _ in spy }], repetitions: 1, workloads: [workload])
    let sizes = try await spy.readAllData().map(\.count)
    #expect(sizes.count == workload.entries)
    let mean = Double(sizes.reduce(0, +)) / Double(sizes.count)
    #expect(abs(mean - Double(workload.valueSize ?? 0)) < 1)
  }
}
