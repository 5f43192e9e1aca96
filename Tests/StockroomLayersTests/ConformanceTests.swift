import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import Testing

/// Layers in front of engines keep the contract: a sample, of which `stockroom conformance --layer` makes all.
@Suite struct LayerConformanceTests {
  static func suite(_ name: String) throws -> ConformanceSuite {
    let engine = try EngineCatalogue.select([name])[0]
    return ConformanceSuite(
      name, capabilities: engine.capabilities, stallTimeout: .seconds(600), budget: .quick,
      worker: engine.capabilities.contains(.persistent)
        ? ConformanceWorker(product: "stockroom", arguments: ["serve", "checks", name]) : nil
    ) { try await engine.open($0, .full) }
  }

  /// All checks in memory; where there is a disk, those that are about values and what happens to them.
  static func checks() throws -> [ConformanceCheck] {
    try EngineCatalogue.layers.flatMap { layer in
      try suite("memory+\(layer.name)").checks
        + suite("sqlite+\(layer.name)").checks.filter { [.v2, .w4, .w6, .f2].contains($0.rule) }
    }
  }

  @Test("A layer keeps the contract of the engine below", arguments: try checks())
  func conforms(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test("A name may have layers, and an unknown one is reported with those that there are")
  func names() throws {
    let names = try EngineCatalogue.select(["sqlite+compressed", "memory", "sqlite", "memory"]).map(\.name)
    #expect(names == ["memory", "sqlite+compressed", "sqlite"])
    for name in ["sqlite+", "sqlite+glittering", "glittering+compressed", "+compressed"] {
      #expect(throws: EngineCatalogue.UnknownEngine.self) { try EngineCatalogue.select([name]) }
    }
  }
}
