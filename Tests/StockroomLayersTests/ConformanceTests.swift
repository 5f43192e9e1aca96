import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// Layers in front of engines keep the contract: a sample, of which `stockroom conformance --layer` makes all.
@Suite struct LayerConformanceTests {
  static func suite(_ name: String) throws -> ConformanceSuite {
    let engine = try EngineCatalog.select([name])[0]
    return ConformanceSuite(
      name, capabilities: engine.capabilities, stallTimeout: .seconds(600), budget: .quick,
      worker: engine.capabilities.contains(.persistent)
        ? ConformanceWorker(product: "stockroom", arguments: ["serve", "checks", name]) : nil
    ) { try await engine.open($0, .full) }
  }

  /// Of each layer what is about keys and values; of those that only change values, and have all else from one piece of code, the encrypted
  /// one stands for the others where it is not about values. Of the instrumented one, which passes on each call as it is, what does not
  /// reach it in the stack: that scans nothing below the hidden keys. Of layers that keep something of their own also calls at the same
  /// time; of these, and of a stack of those that change values, what a killed process and a power cut leave. Of all layers in front of one
  /// another everything but what is about the Store.
  static func checks() throws -> [ConformanceCheck] {
    let names = EngineCatalog.layers.map(\.name)
    let single =
      try names.flatMap { layer in
        try suite("memory+\(layer)").checks.filter {
          let rules =
            switch layer {
            case "compressed", "checksummed": "VWR"
            case "instrumented": "KRTX"
            default: "KVWRDLTX"
            }
          let isAsked = keepsSomething.contains(layer) || !isOfCallsAtOnce($0)
          return (rules.contains($0.rule.rawValue.prefix(1)) || $0.rule == .t2) && isAsked && !isLong($0)
        }
      }
      + ["inventory", "expiring", "hidden"].flatMap { layers in
        try suite("sqlite+\(layers)").checks.filter { $0.rule == .w6 && !isLong($0) }
      }
    let stack = try suite((["memory"] + names.filter { $0 != "encrypted" }).joined(separator: "+"))
    return try single + stack.checks.filter { !$0.rule.isForStores && !isLong($0) }
      + suite("lmdb+namespaced+compressed").checks.filter { [.w4, .w6, .t1, .x1].contains($0.rule) }
      + inventory("sqlite", [.f2]) + inventory("lmdb", [.f2, .f4]) + inventory("leveldb", [.f2, .f4, .o4])
  }

  /// What is about some rules, but for a thousand reads of a place of which each looks at everything before it throws.
  private static func inventory(_ engine: String, _ rules: Set<ContractRule>) throws -> [ConformanceCheck] {
    try suite("\(engine)+inventory").checks.filter {
      rules.contains($0.rule) && $0.id != "corruption.of-many-found-by-verify"
    }
  }

  /// Searches, and places of thousands of entries or megabytes: they are about an engine's own structures.
  private static func isLong(_ check: ConformanceCheck) -> Bool {
    let kinds = ["model.", "linearizability.", "life.", "late.", "crowd.", "sizes.", "changes.subscribers-"]
    let checks: Set = [
      "batches.of-any-size", "reads.of-100000-keys", "write.beyond-10000-entries", "values.of-megabytes",
      "values.64-mebibytes", "scan.costs-what-it-returns", "scan.among-thousands",
      "keys.thousands-with-a-long-prefix", "transactions.scans-after-many-removals",
      "changes.of-a-large-batch",
    ]
    return checks.contains(check.id) || kinds.contains { check.id.hasPrefix($0) }
  }

  private static let keepsSomething = ["inventory", "expiring", "cached"]

  /// What others see of calls and transactions that run at the same time.
  private static func isOfCallsAtOnce(_ check: ConformanceCheck) -> Bool {
    let kinds = ["-beside-writers", "no-phantoms-in-", "-shows-one-moment", "of-concurrent-writes"]
    let checks: Set = [
      "transactions.lose-no-update", "transactions.no-write-skew", "transactions.of-long-bodies",
      "transactions.read-one-moment", "transactions.undo-no-other-write",
    ]
    return checks.contains(check.id) || kinds.contains { check.id.contains($0) }
  }

  @Test("A layer keeps the contract of the engine below", arguments: try checks().spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test("A name may have layers, and an unknown one is reported with those that there are")
  func names() throws {
    let names = try EngineCatalog.select(["sqlite+compressed", "memory", "sqlite", "memory"]).map(\.name)
    #expect(names == ["memory", "sqlite+compressed", "sqlite"])
    for name in ["sqlite+", "sqlite+glittering", "glittering+compressed", "+compressed"] {
      #expect(throws: EngineCatalog.UnknownEngine.self) { try EngineCatalog.select([name]) }
    }
  }
}
