import ConformanceKit
import StockroomCore
import StockroomEngines
import Testing

@testable import StockroomCLI

@Suite("Processes that are killed, and two processes at a time") struct KillTests {
  struct Case: Sendable, CustomTestStringConvertible {
    let engine: EngineCatalogue.Entry
    let durability: Durability
    let check: ConformanceCheck

    var testDescription: String { "\(engine.name), \(durability.rawValue): \(check.id)" }
  }

  /// The checks with a process that is killed or not alone, with more kills than a run of all checks has. At full
  /// durability the tests of each engine make these checks; waiting for the disk shows nothing more here.
  static let cases = EngineCatalogue.onThisMachine.filter { $0.capabilities.contains(.persistent) }.flatMap {
    engine in
    [Durability.process].flatMap { durability in
      var budget = ConformanceBudget(.quick)
      budget.seed = 2_026
      budget.kills = 10
      let worker = ConformanceWorker(
        product: "stockroom",
        arguments: ["serve", "checks", engine.name, "--durability", durability.rawValue])
      return ConformanceSuite(
        engine.name, capabilities: engine.capabilities(at: durability), stallTimeout: .seconds(600),
        budget: budget,
        worker: worker
      ) {
        try await engine.open($0, durability)
      }.checks
        .filter { $0.id.hasPrefix("killed.") || $0.id.hasPrefix("processes.") }
        .map { Case(engine: engine, durability: durability, check: $0) }
    }
  }

  @Test("Every built-in engine passes with many kills", arguments: cases)
  func passes(_ test: Case) async throws { try await test.check.run() }
}
