import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// Layers in front of engines conform to the contract. This is a sample; `stockroom conformance --layer` runs
/// all checks.
@Suite struct LayerConformanceTests {
  static func suite(_ name: String) throws -> ConformanceSuite {
    let engine = try EngineCatalog.select([name])[0]
    return ConformanceSuite(
      name, capabilities: engine.capabilities, stallTimeout: .seconds(600), budget: .quick,
      worker: engine.capabilities.contains(.persistent)
        ? ConformanceWorker(product: "stockroom", arguments: ["serve", "checks", name]) : nil
    ) { try await engine.open($0, .full) }
  }

  /// For each layer, the checks of keys and values. The layers that only change values share all other code, so of
  /// these only the encrypted layer runs the checks of everything else. The instrumented layer forwards every call
  /// unchanged, so it runs only the checks that do not reach it in the stack, where the hidden keys allow no
  /// scans. Layers with state of their own also run the checks of concurrent calls. Some layers and a stack run
  /// the checks of killed processes and power cuts. The stack of all layers runs everything except long checks
  /// and those of the Store.
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
      + amongFilesOfOthers()
  }

  /// The check with foreign files, one of which Files treats as an entry that these layers cannot decode.
  private static func amongFilesOfOthers() throws -> [ConformanceCheck] {
    try ["files+checksummed", "files+inventory"].flatMap { name in
      try suite(name).checks.filter { $0.id == "removal.spares-foreign-files" }
    }
  }

  /// The checks of some rules, except for a thousand reads of a place where each read scans all entries
  /// before it throws.
  private static func inventory(_ engine: String, _ rules: Set<ContractRule>) throws -> [ConformanceCheck] {
    try suite("\(engine)+inventory").checks.filter {
      rules.contains($0.rule) && $0.id != "corruption.of-many-found-by-verify"
    }
  }

  /// Searches, and places with thousands of entries or megabytes, which test an engine's own data structures.
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

  /// Checks of what concurrent calls and transactions observe.
  private static func isOfCallsAtOnce(_ check: ConformanceCheck) -> Bool {
    let kinds = ["-beside-writers", "no-phantoms-in-", "-returns-one-snapshot", "of-concurrent-writes"]
    let checks: Set = [
      "transactions.lose-no-update", "transactions.no-write-skew", "transactions.of-long-bodies",
      "transactions.read-one-snapshot", "transactions.undo-no-other-write",
    ]
    return checks.contains(check.id) || kinds.contains { check.id.contains($0) }
  }

  @Test("A layer conforms to the contract in front of an engine", arguments: try checks().spread)
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test("A name may include layers, and an unknown layer is reported with the known ones")
  func names() throws {
    let names = try EngineCatalog.select(["sqlite+compressed", "memory", "sqlite", "memory"]).map(\.name)
    #expect(names == ["memory", "sqlite+compressed", "sqlite"])
    for name in ["sqlite+", "sqlite+glittering", "glittering+compressed", "+compressed"] {
      #expect(throws: EngineCatalog.UnknownEngine.self) { try EngineCatalog.select([name]) }
    }
  }
}
