import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import Testing

/// A faulty engine, and the rules that it breaks.
struct FaultyEngineCase: Sendable, CustomTestStringConvertible {
  let name: String
  let rule: ContractRule
  /// Rules that an engine cannot follow if it breaks the first one.
  let also: Set<ContractRule>
  let capabilities: EngineCapabilities
  /// The stall timeout of each check.
  let stallTimeout: Duration
  let makeEngine: @Sendable (URL) async throws -> any StorageEngine

  var testDescription: String { "\(rule): \(name)" }

  /// Describes an engine that keeps its entries in memory.
  init(
    _ rule: ContractRule, _ name: String, also: Set<ContractRule> = [],
    claiming capabilities: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans],
    stallTimeout: Duration = .seconds(60),
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) {
    (self.name, self.rule, self.also, self.capabilities) = (name, rule, also, capabilities)
    self.stallTimeout = stallTimeout
    self.makeEngine = { _ in makeEngine(try ReferenceEngine(claiming: capabilities)) }
  }

  /// Describes an engine that keeps its entries in a file.
  init(
    persistent rule: ContractRule, _ name: String, fault: ReferenceEngine.Fault? = nil,
    also: Set<ContractRule> = [],
    claiming capabilities: EngineCapabilities = ReferenceEngine.promises,
    stallTimeout: Duration = .seconds(60),
    makeEngine: @escaping @Sendable (ReferenceEngine, URL) -> any StorageEngine = { base, _ in base }
  ) {
    (self.name, self.rule, self.also, self.capabilities) = (name, rule, also, capabilities)
    self.stallTimeout = stallTimeout
    self.makeEngine = {
      makeEngine(try ReferenceEngine(directory: $0, fault: fault, claiming: capabilities), $0)
    }
  }

  /// Describes an engine that keeps its entries in a file, with a custom way to open it.
  init(
    _ rule: ContractRule, _ name: String, opening: @escaping @Sendable (URL) async throws -> any StorageEngine
  ) {
    (self.name, self.rule, also, capabilities) = (name, rule, [], ReferenceEngine.promises)
    stallTimeout = .seconds(60)
    makeEngine = opening
  }

  /// All faulty engines.
  static let all: [FaultyEngineCase] = [
    ofKeys, ofValues, ofWrites, ofTimes, ofBatches, ofEntries, ofReads, ofSnapshots, ofScans, ofRemovals,
    ofConcurrency, ofCancellation, ofFiles, ofClaims, ofTransactions, ofBodies, ofBodiesBesideOthers,
    ofIsolation,
    ofWrongTiming, ofRuns, ofCommits, ofFirstCalls, ofReopenings, ofReleases,
    ofLayers,
    ofClosings, ofSuspensions, ofWaiting,
  ].flatMap { $0 }
}
