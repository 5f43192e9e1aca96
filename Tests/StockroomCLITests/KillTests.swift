import ConformanceKit
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

@testable import StockroomCLI

@Suite("Processes that are killed") struct KillTests {
  struct Case: Sendable, CustomTestStringConvertible {
    let engine: EngineCatalog.Entry
    let check: ConformanceCheck

    var testDescription: String { "\(engine.name): \(check.id)" }
  }

  /// The checks that kill a process, with more kills than at the level quick. The tests of each engine run these
  /// checks at full durability; waiting for the disk shows nothing more here. Those of files run most of them at
  /// this durability too.
  static let cases = EngineCatalog.onThisMachine.filter { $0.capabilities.contains(.persistent) }.flatMap {
    engine in
    var budget = ConformanceBudget(.quick)
    budget.seed = 2_026
    budget.kills = TestRun.count(4, exhaustive: 10)
    return ConformanceSuite(
      engine.name, capabilities: engine.capabilities(at: .process), stallTimeout: .seconds(600),
      budget: budget,
      worker: ConformanceWorker(
        product: "stockroom",
        arguments: ["serve", "checks", engine.name, "--durability", Durability.process.rawValue])
    ) {
      try await engine.open($0, .process)
    }.checks
      .filter { check in
        let isMadeElsewhere = engine.name == "files" && [.w4, .w6].contains(check.rule)
        return check.id.hasPrefix("killed.") && (TestRun.isExhaustive || !isMadeElsewhere)
      }
      .map { Case(engine: engine, check: $0) }
  }

  @Test("Every built-in engine passes with many kills", arguments: cases)
  func passes(_ test: Case) async throws { try await test.check.run() }
}
