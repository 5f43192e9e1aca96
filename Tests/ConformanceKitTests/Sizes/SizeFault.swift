import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures
import Testing

/// An engine with a fault in sizes, names or one of several equivalent methods, and the check that detects it.
struct SizeFault: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let name: String
  /// The check that has to detect it.
  let check: String
  let level: ConformanceBudget.Level
  /// A text that the failure must contain: the smallest failing size.
  let shows: String?
  let isPersistent: Bool
  /// The capabilities that the engine claims in addition to the common ones.
  let claims: EngineCapabilities
  private(set) var makeEngine: @Sendable (URL) throws -> any StorageEngine
  /// Puts an engine that makes the store faulty in front of another one.
  var makeStoreEngine: (@Sendable (any StorageEngine) -> any StorageEngine)?

  var testDescription: String { "\(rule), \(check): \(name)" }

  init(
    _ rule: ContractRule, _ check: String, _ name: String, at level: ConformanceBudget.Level? = nil,
    shows: String? = nil, isPersistent: Bool = false, claiming claims: EngineCapabilities = [],
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) {
    (self.rule, self.check, self.name, self.shows) = (rule, check, name, shows)
    // Some checks of names only run from that level on.
    self.level = level ?? (check.hasPrefix("names.") ? .standard : .quick)
    (self.isPersistent, self.claims) = (isPersistent, claims)
    self.makeEngine = { makeEngine(try ReferenceEngine(directory: isPersistent ? $0 : nil)) }
  }

  /// Describes an engine that keeps its entries in a file, with another file beside it.
  init(
    inPlace rule: ContractRule, _ check: String, _ name: String,
    makeEngine: @escaping @Sendable (ReferenceEngine, URL) -> any StorageEngine
  ) {
    self.init(rule, check, name, isPersistent: true) { $0 }
    self.makeEngine = { makeEngine(try ReferenceEngine(directory: $0), $0) }
  }

  /// Describes a correct engine with a store that loses items.
  init(
    store rule: ContractRule, _ check: String, _ name: String, shows: String? = nil,
    makeStoreEngine: @escaping @Sendable (any StorageEngine) -> any StorageEngine
  ) {
    self.init(rule, check, name, shows: shows) { $0 }
    self.makeStoreEngine = makeStoreEngine
  }

  /// All of these faults.
  static let all =
    ofLists + ofRequests + ofBatches + ofEntries + ofTransactions + ofWrongTiming + ofBytes + ofStores
    + ofNames
    + ofValues + ofWays + ofLargeChanges

  var suite: ConformanceSuite {
    var suite = ConformanceSuite(
      name,
      capabilities: isPersistent
        ? ReferenceEngine.promises : claims.union([.atomicBatches, .snapshotReads, .orderedScans]),
      budget: ConformanceBudget(level)
    ) { try makeEngine($0) }
    // The machine's speed must not decide which sizes are tried.
    suite.isSpeedMeasured = false
    if let makeStoreEngine { suite.makeStore = { ReferenceStore(makeStoreEngine($0)) } }
    return suite
  }

  /// The failure that the check reports.
  func failure() async throws -> ConformanceFailure? {
    try await #require(suite.checks.first { $0.id == check }).outcome().failure
  }
}

@Suite("Faults of sizes, names and ways")
struct SizeFaultTests {
  @Test(
    "Each fault is found by its check, under its rule, with the smallest size that shows it",
    arguments: SizeFault.all.spread)
  func isFound(_ fault: SizeFault) async throws {
    var failure = try await fault.failure()
    // If tasks have to overlap at the right moment, several attempts may be necessary on a busy machine.
    for _ in 0..<20 where failure == nil { failure = try await fault.failure() }
    #expect(failure?.rule == fault.rule, "\(failure?.actual ?? "nothing was found")")
    if let shows = fault.shows {
      #expect(failure?.actual.contains(shows) == true, "\(failure?.actual ?? "")")
    }
  }

  @Test("Every check of sizes, names and ways has a fault that it finds")
  func everyCheckFails() throws {
    let all: EngineCapabilities = EngineCapabilities.named.reduce(into: []) { $0.formUnion($1.capability) }
    let suite = ConformanceSuite("", capabilities: all) { _ in try ReferenceEngine() }
    let checks = suite.checks.map(\.id).filter(SizeFault.isOwn)
    #expect(Set(checks) == Set(SizeFault.all.map(\.check)))
    #expect(Set(SizeFault.all.map(\.testDescription)).count == SizeFault.all.count)
    #expect(SizeFault.all.count >= 80)
  }
}

extension SizeFault {
  /// Whether a check is about sizes, names or equivalent methods. These have separate faults.
  static func isOwn(_ check: String) -> Bool {
    ["sizes.", "names.", "ways.", "store.sizes"].contains { check.hasPrefix($0) }
  }
}
