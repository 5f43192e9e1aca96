import ConformanceKit
import Foundation
import StockroomCore
import Testing

/// A broken engine, and which rules it breaks.
struct MuseumPiece: Sendable, CustomTestStringConvertible {
  let name: String
  let rule: ContractRule
  /// Rules that cannot be kept by an engine that breaks the first.
  let also: Set<ContractRule>
  let capabilities: EngineCapabilities
  /// How long it is waited for in each check.
  let timeLimit: Duration
  let makeEngine: @Sendable (URL) async throws -> any StorageEngine

  var testDescription: String { "\(rule): \(name)" }

  /// A piece that keeps its entries in memory.
  init(
    _ rule: ContractRule, _ name: String, also: Set<ContractRule> = [],
    claiming capabilities: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans],
    timeLimit: Duration = .seconds(60), makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) {
    (self.name, self.rule, self.also, self.capabilities) = (name, rule, also, capabilities)
    self.timeLimit = timeLimit
    self.makeEngine = { _ in makeEngine(try ReferenceEngine(claiming: capabilities)) }
  }

  /// A piece that keeps its entries in a file.
  init(
    persistent rule: ContractRule, _ name: String, flaw: ReferenceEngine.Flaw? = nil,
    also: Set<ContractRule> = [],
    claiming capabilities: EngineCapabilities = ReferenceEngine.promises, timeLimit: Duration = .seconds(60),
    makeEngine: @escaping @Sendable (ReferenceEngine, URL) -> any StorageEngine = { base, _ in base }
  ) {
    (self.name, self.rule, self.also, self.capabilities) = (name, rule, also, capabilities)
    self.timeLimit = timeLimit
    self.makeEngine = {
      makeEngine(try ReferenceEngine(directory: $0, flaw: flaw, claiming: capabilities), $0)
    }
  }

  /// Every piece there is.
  static let all: [MuseumPiece] =
    ofKeys + ofValues + ofWrites + ofBatches + ofReads + ofScans + ofRemovals + ofConcurrency + ofFiles
    + ofClaims
}
