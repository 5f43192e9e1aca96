import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore
import TestFixtures
import Testing

/// A faulty store, and the rules that it breaks.
struct FaultyStoreCase: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let fault: ReferenceStore.Fault
  /// The capabilities of the engine behind it.
  var capabilities: EngineCapabilities = [.atomicBatches]
  /// Rules that a store cannot follow if it breaks the first one.
  let also: Set<ContractRule>

  var testDescription: String { "\(rule): \(fault)" }

  init(
    _ rule: ContractRule, _ fault: ReferenceStore.Fault, also: Set<ContractRule> = [],
    in capabilities: EngineCapabilities = [.atomicBatches]
  ) {
    (self.rule, self.fault, self.also, self.capabilities) = (rule, fault, also, capabilities)
  }

  /// The checks to run on the store: those of the rule that it breaks and, in an exhaustive run, those of all others,
  /// which it must pass if it can.
  var checks: [ConformanceCheck] {
    FaultyStoreTests.checks(fault: fault, capabilities: capabilities).filter {
      TestRun.isExhaustive || $0.rule == rule
    }
  }

  static let all: [FaultyStoreCase] = [
    .init(.s1, .losesConcurrentChanges, also: [.s2, .s5]),
    .init(.s1, .appendsWhatItLoads, also: [.s2]),
    .init(.s2, .changesItemsFirst, also: [.s3]),
    .init(.s2, .believesErrors),
    .init(.s2, .ignoresErrors, also: [.s3, .s5]),
    .init(.s2, .writesBeforeLoading),
    .init(.s2, .skipsUnencodable),
    .init(.s3, .runsChainsInParts),
    .init(.s3, .changesItemsStepByStep),
    .init(.s3, .runsChainsAtOnce),
    .init(.s3, .runsChainsAgain),
    .init(.s3, .runsChainsTwice),
    // The order is wrong wherever the items are compared with those of a new store.
    .init(.s4, .ordersByKey, also: [.s1, .s2, .s3, .s5, .s6, .s8]),
    .init(.s4, .ordersByLastWrite, also: [.s1, .s2, .s3, .s6, .s8]),
    .init(.s4, .replacesAtTheEnd, also: [.s1, .s2, .s3, .s5, .s6, .s8]),
    .init(.s5, .announcesEarly),
    .init(.s5, .announcesEachItem),
    .init(.s5, .announcesChainsBackwards),
    .init(.s5, .notifiesTheLastSubscriber),
    .init(.s5, .announcesOnlyChanges),
    .init(.s5, .loadsInSilence),
    .init(.s5, .waitsForSubscribers),
    .init(.s5, .forgetsForSlowSubscribers),
    .init(.s6, .hidesUnreadable),
    .init(.s6, .deletesUnreadable),
    .init(.s6, .failsOnUnreadable),
    .init(.s6, .stopsAtUnreadable),
    .init(.s7, .writesEverything),
    .init(.s7, .readsEverything),
    .init(.s7, .copiesItems),
    .init(.s7, .copiesItemsToAppend),
    .init(.s7, .copiesItemsToReplace),
    .init(.s8, .cutsIdentifiers),
    .init(.s8, .composesIdentifiers),
    .init(.s8, .hashesBeginnings),
    .init(.s8, .refusesLongIdentifiers),
    .init(.s8, .replacesByHash),
    .init(.s9, .followsNobody, in: [.atomicBatches, .changeFeed]),
    .init(.s9, .followsWithoutRemovals, in: [.atomicBatches, .changeFeed]),
    .init(.s9, .appendsWhatOthersInsert, in: [.atomicBatches, .changeFeed]),
    .init(.s9, .keepsUnreadableItems, in: [.atomicBatches, .changeFeed]),
    .init(.s9, .takesEverythingForRemoval, in: [.atomicBatches, .changeFeed]),
    .init(.s10, .updatesWithoutTransaction, in: [.atomicBatches, .transactions]),
    .init(.s10, .updatesBeforeRefusing, in: [.atomicBatches, .transactions]),
    .init(.s2, .believesFailedUpdates, in: [.atomicBatches, .transactions]),
    .init(.s5, .updatesInSilence, in: [.atomicBatches, .transactions]),
    .init(.s5, .announcesFailedUpdates, in: [.atomicBatches, .transactions]),
    .init(.s8, .updatesByIdentifier, in: [.atomicBatches, .transactions]),
    .init(.s10, .showsItsOwnUpdate, in: [.atomicBatches, .transactions]),
    .init(.s10, .revivesWhenUpdating, in: [.atomicBatches, .transactions]),
  ]
}

@Suite("Faulty stores")
struct FaultyStoreTests {
  fileprivate static func checks(
    fault: ReferenceStore.Fault? = nil, capabilities: EngineCapabilities = [.atomicBatches],
    makeEngine: (@Sendable (URL) throws -> any StorageEngine)? = nil
  ) -> [ConformanceCheck] {
    let makeEngine = makeEngine ?? { _ in try ReferenceEngine(claiming: capabilities) }
    let budget: ConformanceBudget = TestRun.isExhaustive ? .standard : .quick
    // If a store never shows the expected items, the check waits until it stalls.
    var suite = ConformanceSuite(
      "Plain", capabilities: capabilities,
      stallTimeout: fault?.neverShowsChanges ?? false ? .seconds(10) : .seconds(60),
      budget: budget,
      makeEngine: makeEngine)
    suite.makeStore = { ReferenceStore($0, fault: fault) }
    return suite.checks.filter(\.rule.isForStores)
  }

  /// Whether one of the checks of a rule, or else one of the others, reports that the rule is broken.
  private static func isBroken(_ rule: ContractRule, by checks: [ConformanceCheck]) async -> Bool {
    for check in checks.filter({ $0.rule == rule }) + checks.filter({ $0.rule != rule }) {
      if await check.outcome().failure?.rule == rule { return true }
    }
    return false
  }

  @Test(
    "Each faulty store fails a check of its rule, and none of a rule that it follows",
    arguments: FaultyStoreCase.all.spread)
  func failsForItsRule(_ engineCase: FaultyStoreCase) async {
    let failures = await CheckOutcomes.shared.outcomes(of: engineCase).values.compactMap(\.failure)
    var failsForItsRule = failures.contains { $0.rule == engineCase.rule }
    // If tasks have to overlap at the right moment, several attempts may be necessary on a busy machine.
    for _ in 0..<20 where !failsForItsRule {
      for check in engineCase.checks where check.rule == engineCase.rule && !failsForItsRule {
        failsForItsRule = await check.outcome().failure?.rule == engineCase.rule
      }
    }
    #expect(failsForItsRule)
    let unjustified = failures.filter { $0.rule != engineCase.rule && !engineCase.also.contains($0.rule) }
    #expect(
      unjustified.isEmpty, "\(unjustified.map { "\($0.check): \($0.actual)" }.joined(separator: "\n"))")
  }

  @Test("A plain store in front of an engine in memory passes", arguments: checks())
  func passes(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "A plain store in front of an engine in a file passes",
    arguments: checks(capabilities: ReferenceEngine.promises) { try ReferenceEngine(directory: $0) })
  func passesOnFile(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "A plain store in front of an engine with transactions passes",
    arguments: checks(capabilities: [.atomicBatches, .transactions]))
  func passesWithTransactions(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "A plain store in front of an engine with six methods passes",
    arguments: checks(capabilities: []) { _ in LockedEngine() })
  func passesOnMinimalEngine(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test("A store in front of a faulty engine fails")
  func onBrokenEngines() async {
    let byKey = Self.checks { _ in ListsEntriesByKey(base: try ReferenceEngine()) }
    #expect(await Self.isBroken(.s4, by: byKey))
    let byLastWrite = Self.checks { _ in ListsEntriesByLastWrite(base: try ReferenceEngine()) }
    #expect(await Self.isBroken(.s4, by: byLastWrite))
    let lowercase = Self.checks { _ in RenamingEngine(base: try ReferenceEngine()) { $0.lowercased() } }
    #expect(await Self.isBroken(.s8, by: lowercase))
  }
}

extension ReferenceStore.Fault {
  /// Whether the store never shows the changes that a check waits for.
  fileprivate var neverShowsChanges: Bool {
    switch self {
    case .followsNobody, .followsWithoutRemovals, .appendsWhatOthersInsert, .keepsUnreadableItems,
      .takesEverythingForRemoval:
      true
    default: false
    }
  }
}
