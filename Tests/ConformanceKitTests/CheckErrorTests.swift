import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

@Suite("Checks that cannot run")
struct CheckErrorTests {
  @Test("A check without space for its directory could not run, and fails no engine")
  func noDirectory() async throws {
    let file = FileManager.default.temporaryDirectory.appending(path: "file-\(UUID().uuidString)")
    try Data().write(to: file)
    defer { try? FileManager.default.removeItem(at: file) }
    let suite = ConformanceSuite("Any", capabilities: [], workingDirectory: file) { _ in
      try ReferenceEngine(claiming: [])
    }
    let check = try #require(suite.checks.first)
    guard case .couldNotRun = await check.outcome() else {
      Issue.record("\(await check.outcome())")
      return
    }
    let checkError = await #expect(throws: ConformanceCheckError.self) { try await check.run() }
    #expect(checkError?.check == check.id)
    let report = await suite.run(only: [check.id])
    #expect(report.failures.isEmpty && report.checkErrors.count == 1 && !report.isConforming)
  }

  @Test("Checks that need a worker process are left out without one, and only those")
  func withoutWorker() async throws {
    let suite = ConformanceSuite("Alone", capabilities: ReferenceEngine.promises) {
      try ReferenceEngine(directory: $0)
    }
    // Checks of a higher level are left out even with a worker.
    let later: Set = ["clock.waiting"]
    let leftOut = Set(suite.checksLeftOut.map(\.id)).subtracting(later)
    #expect(
      leftOut.isSuperset(of: ["killed.while-writing-batches", "opening.costs-the-same", "clock.set-back"]))
    #expect(leftOut.isDisjoint(with: suite.checks.map(\.id)))
    let report = await suite.run(only: leftOut.union(["values.empty-is-not-absent"]))
    #expect(report.leftOutCount == leftOut.count && report.passedCount == 1, "\(report)")
    #expect(report.applicableCount == suite.checks.count + leftOut.count)
    #expect(!report.isComplete)

    let worker = ConformanceSuite(
      "Not alone", capabilities: ReferenceEngine.promises,
      worker: ConformanceWorker(product: "FaultyEngineWorker")
    ) { try ReferenceEngine(directory: $0) }
    #expect(Set(worker.checksLeftOut.map(\.id)) == later)
    #expect(report.laterChecks == [.exhaustive: 1])
    #expect(worker.checks.count == report.applicableCount)
  }

  @Test("A suite without given capabilities reads them from the engine, and removes its directory")
  func capabilities() async throws {
    let parent = FileManager.default.temporaryDirectory.appending(path: "kit-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: parent) }
    let suite = try await ConformanceSuite("File", workingDirectory: parent) {
      try ReferenceEngine(directory: $0)
    }
    #expect(suite.capabilities == ReferenceEngine.promises)
    #expect(try FileManager.default.contentsOfDirectory(atPath: parent.path(percentEncoded: false)) == [])
  }

  @Test("An engine that holds every thread of the cooperative pool does not stop the clock", .ownThreads)
  func heldPool() async {
    // In a separate process, where threads that are blocked forever do no harm.
    await #expect(processExitsWith: .exitCode(9)) {
      let suite = ConformanceSuite("Held", capabilities: [], stallTimeout: .seconds(1)) { _ in
        HoldsThePool(base: try ReferenceEngine(claiming: []))
      }
      // A task that waits for a thread of the pool waits forever; the main actor does not.
      Task { @MainActor in
        let report = await suite.run(only: ["write.is-read-back"])
        let isReported = report.failures.map(\.rule) == [.w1]
        exit(isReported ? 9 : 1)
      }
      try? await Task.sleep(for: .seconds(100))
    }
  }
}

/// Blocks all threads of the cooperative pool forever.
private final class HoldsThePool: FaultyEngine {
  let base: ReferenceEngine
  private let heldCount = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let count = ProcessInfo.processInfo.activeProcessorCount
    for _ in 0..<count {
      Task.detached(priority: .high) { [self] in
        heldCount.withLock { $0 += 1 }
        while true { usleep(1_000_000) }
      }
    }
    while heldCount.withLock({ $0 }) < count { usleep(1_000) }
    await Task.detached {}.value
  }
}
