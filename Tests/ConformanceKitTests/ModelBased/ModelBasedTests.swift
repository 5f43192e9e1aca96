import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures
import Testing

@Suite("Model-based checks")
struct ModelBasedTests {
  @Test(
    "Each engine that fails in few sequences is found, with the shortest sequence",
    arguments: ModelBasedCase.all.spread)
  func failsShortest(_ testCase: ModelBasedCase) async throws {
    let failure = try #require(
      await ModelBasedFailures.shared.failure(of: testCase), "No sequence shows it.")
    // The times of an entry that should have been removed are wrong only if the clock has advanced enough. Such a
    // failure may not recur, and then is not shrunk.
    let dependsOnTheClock = failure.rule == .w2 && failure.numberOfCalls == nil
    // If the order in which two rules are broken depends on the clock, either may be reported.
    #expect(
      failure.rule == testCase.engineCase.rule || testCase.engineCase.also.contains(failure.rule)
        || dependsOnTheClock, "\(failure.actual)")
    let isShortest = failure.numberOfCalls.map { $0 <= testCase.calls } ?? dependsOnTheClock
    #expect(isShortest || failure.rule != testCase.engineCase.rule, "\(failure.actual)")
  }

  @Test("Every check of generated sequences has an engine that fails it")
  func everyCheckFails() {
    #expect(Set(ModelBasedCase.all.map(\.check)) == Set(ReferenceEngine.modelBasedChecks))
  }

  @Test("The same seed generates the same sequences and the same failure")
  func sameSeed() async throws {
    let engineCase = try #require(
      ModelBasedCase.all.first { $0.engineCase.name == "spares the batch that removes everything" }
    ).engineCase
    let first = await engineCase.modelBasedChecks().first { $0.id == "model.batches" }?.outcome()
    let second = await engineCase.modelBasedChecks().first { $0.id == "model.batches" }?.outcome()
    #expect(first?.failure != nil)
    #expect(first == second)
  }

  @Test(
    "The seed of a failure reproduces it with the first sequence",
    arguments: ["counts repeats", "keeps 1 MiB of a value"])
  func namedSeed(_ name: String) async throws {
    let testCase = try #require(ModelBasedCase.all.first { $0.engineCase.name == name })
    var budget = ConformanceBudget()
    budget.seed = 7
    budget.operations = 20_000
    let failure = try #require(await testCase.engineCase.firstFailure(budget, of: testCase.check))
    budget.seed = failure.seed
    // Enough for one sequence.
    budget.operations = 1_000
    let again = try #require(await testCase.engineCase.firstFailure(budget, of: failure.check))
    #expect(again.actual == failure.actual)
  }

  @Test("A failure that does not recur is reported with its seed")
  func irreproducible() async throws {
    let memory = GoesWrongOnce.Memory()
    let engineCase = FaultyEngineCase(.l2, "goes wrong once") { GoesWrongOnce(base: $0, memory: memory) }
    let failure = try #require(await engineCase.firstFailure())
    #expect(failure.rule == .l2)
    #expect(failure.actual.contains("of the sequence of seed 1; it did not happen each time"))
  }

  @Test("A search with a duration takes that long")
  func duration() async throws {
    var budget = ConformanceBudget()
    budget.operations = 1
    budget.duration = .seconds(2)
    let opened = MutexProtected(0)
    let engineCase = FaultyEngineCase(.w1, "counts how often it is opened") { base in
      opened.withLock { $0 += 1 }
      return base
    }
    let start = ContinuousClock.now
    let check = try #require(engineCase.modelBasedChecks(budget).first)
    #expect(await check.outcome() == .passed)
    #expect(ContinuousClock.now - start >= .seconds(2))
    #expect(opened.withLock { $0 } > 1)
  }

  @Test("Searches remove their directories")
  func leavesNothing() async throws {
    let parent = FileManager.default.temporaryDirectory.appending(path: "kit-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: parent) }
    // Directories are removed in one place, whether or not a search finds something, so one engine is enough for the
    // searches that find nothing.
    let persistent = ModelBasedCase.all.filter { $0.engineCase.capabilities.contains(.persistent) }
    for (number, testCase) in persistent.enumerated() {
      for check in testCase.engineCase.modelBasedChecks(in: parent)
      where number == 0 || check.id == testCase.check { _ = await check.outcome() }
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: parent.path(percentEncoded: false)) == [])
  }
}

extension ReferenceEngine {
  /// Every check of sequences, by its identifier.
  fileprivate static var modelBasedChecks: [String] {
    FaultyEngineCase(persistent: .w1, "correct", claiming: ReferenceEngine.promises.union(.transactions))
      .modelBasedChecks().map(\.id)
  }
}

extension FaultyEngineCase {
  func modelBasedChecks(
    _ budget: ConformanceBudget = ConformanceBudget(),
    in directory: URL = FileManager.default.temporaryDirectory
  ) -> [ConformanceCheck] {
    ConformanceSuite(
      name, capabilities: capabilities, workingDirectory: directory, budget: budget, makeEngine: makeEngine
    ).checks.filter { $0.id.hasPrefix("model.") }
  }

  /// The failure of the first failing check of sequences, or of one of them.
  func firstFailure(
    _ budget: ConformanceBudget = ConformanceBudget(), of id: String? = nil
  ) async -> ConformanceFailure? {
    for check in modelBasedChecks(budget) where id == nil || check.id == id {
      if let failure = await check.outcome().failure { return failure }
    }
    return nil
  }
}

extension ConformanceFailure {
  /// The number of calls of the shortest sequence.
  var numberOfCalls: Int? { number(between: "shortest sequence that shows it (", and: " call") }

  /// The source of the test that reproduces the failure.
  var source: Substring? { evidence?[...] }

  private func number<Number: FixedWidthInteger>(between start: String, and end: String) -> Number? {
    guard let start = actual.firstRange(of: start) else { return nil }
    let rest = actual[start.upperBound...]
    guard let end = rest.firstRange(of: end) else { return nil }
    return Number(rest[..<end.lowerBound])
  }
}
