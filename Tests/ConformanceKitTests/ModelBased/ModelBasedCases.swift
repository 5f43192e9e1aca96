import FaultyEngineWorker
import Foundation
import StockroomCore
import StockroomMemory
import Testing

@testable import ConformanceKit

/// A faulty engine that examples rarely detect, and the length of its shortest failing sequence.
struct ModelBasedCase: Sendable, CustomTestStringConvertible {
  let engineCase: FaultyEngineCase
  /// The check that detects it.
  let check: String
  /// The number of calls that are sufficient.
  let calls: Int
  /// More than a test suite usually has time for: some sequences are rare.
  var budget: ConformanceBudget {
    var budget = ConformanceBudget()
    budget.operations = 20_000
    return budget
  }

  var testDescription: String { engineCase.testDescription }

  init(_ calls: Int, _ profile: CommandProfile, _ engineCase: FaultyEngineCase) {
    (self.calls, check, self.engineCase) = (calls, profile.check, engineCase)
  }

  private static func transactions(
    _ calls: Int, _ rule: ContractRule, _ name: String, also: Set<ContractRule> = [],
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) -> ModelBasedCase {
    ModelBasedCase(
      calls, .transactions,
      FaultyEngineCase(
        rule, name, also: also, claiming: FaultyEngineCase.claimsOfTransactions, makeEngine: makeEngine))
  }

  /// Engines that cache results.
  private static let ofAnswers: [ModelBasedCase] =
    [.keyExists, .readAllData, .readAllEntries, .scan].map { remembering($0, missing: .transactions) }
    + [.keyCount, .updatedAt].map { remembering($0, missing: .imports) }

  private static func remembering(
    _ method: ReadMethod, missing change: RemembersAnswers.Change
  ) -> ModelBasedCase {
    let rule: ContractRule =
      switch method {
      case .keyExists: .l1
      case .keyCount: .l2
      case .readAllData: .r3
      case .readAllEntries: .r6
      case .scan: .r5
      default: .w2
      }
    return ModelBasedCase(
      4, .everything,
      FaultyEngineCase(
        rule, "remembers across \(change) what \(method.call) answered", also: [.w2],
        claiming: FaultyEngineCase.claimsOfTransactions
      ) { RemembersAnswers(base: $0, method, missing: change) })
  }

  private static func transfers(
    _ calls: Int, _ rule: ContractRule, _ name: String, _ profile: CommandProfile = .batches,
    makeEngine: @escaping @Sendable (MemoryStorageEngine) -> any StorageEngine
  ) -> ModelBasedCase {
    ModelBasedCase(
      calls, profile,
      FaultyEngineCase(
        rule, name, claiming: [.atomicBatches, .snapshotReads, .orderedScans, .preservesTimestamps]
      ) { _ in makeEngine(MemoryStorageEngine()) })
  }

  private static func savingBadly(
    _ calls: Int, _ rule: ContractRule, _ name: String, _ loss: SavesTransactionsBadly.Loss
  ) -> ModelBasedCase {
    ModelBasedCase(
      calls, .reopened,
      FaultyEngineCase(
        persistent: rule, name, claiming: ReferenceEngine.promises.union(.transactions)
      ) { SavesTransactionsBadly(base: $0, $1, losing: loss) })
  }

  static let all: [ModelBasedCase] =
    ofAnswers + [
      .init(2, .singleCalls, .init(.k1, "counts characters of keys") { CountsCharacters(base: $0) }),
      .init(
        2, .singleCalls,
        .init(.k2, "compares 400 bytes of keys", also: [.k3]) { base in
          let keys = FirstKeys()
          return RenamingEngine(base: base) { keys.first(like: $0) }
        }),
      .init(
        2, .singleCalls,
        .init(.k3, "keeps 400 bytes of a key", also: [.k2]) { base in
          RenamingEngine(base: base) { String(decoding: $0.utf8.prefix(400), as: UTF8.self) }
        }),
      .init(2, .batches, .init(.k3, "lists keys as often as a batch has them") { ListsRepeats(base: $0) }),
      .init(2, .batches, .init(.v1, "removes empty values of batches") { RemovesEmptyValues(base: $0) }),
      .init(
        2, .everything,
        .init(.v2, "keeps 1 MiB of a value") { ChangingEngine(base: $0, onTheWayIn: { $0.prefix(1 << 20) }) }
      ),
      .init(
        2, .everything, .init(.v3, "gives slices of large values") { GivesSlicesOfLargeValues(base: $0) }),

      .init(4, .singleCalls, .init(.w2, "skips equal values") { SkipsEqualValues(base: $0) }),
      .init(4, .batches, .init(.w2, "freezes times in batches") { FreezesTimesInBatches(base: $0) }),
      .init(2, .batches, .init(.w3, "writes the longest of several entries") { LongestEntryWins(base: $0) }),
      .init(1, .batches, .init(.w3, "throws for empty batches") { RefusesEmptyBatches(base: $0) }),
      .init(3, .batches, .init(.w4, "removes up to the invalid key") { RemovesUpToTheInvalidKey(base: $0) }),
      .init(
        3, .batches,
        .init(.w5, "forgets overwrites after removals in a batch") {
          ForgetsOverwritesAfterRemovals(base: $0)
        }),
      .init(2, .batches, .init(.w5, "spares the batch that removes everything") { SparesTheBatch(base: $0) }),
      .init(
        3, .reopened,
        .init(persistent: .w6, "forgets empty values when opened") { base, _ in ForgetsEmptyValues(base: base)
        }
      ),
      .init(
        4, .reopened,
        .init(persistent: .w6, "renews times when opened", also: [.w2]) { base, _ in
          RenewsTimesWhenOpened(base: base)
        }),

      .init(2, .everything, .init(.r2, "answers neighbors once") { AnswersNeighborsOnce(base: $0) }),
      .init(3, .everything, .init(.r5, "counts the bound of a scan") { CountsTheBound(base: $0) }),
      .init(
        2, .everything, .init(.r5, "skips an entry after the bound within a prefix") { SkipsTwice(base: $0) }),
      .init(
        4, .batches,
        .init(.r6, "skips removals before writes", also: [.w2]) { SkipsRemovalsBeforeWrites(base: $0) }),
      .init(
        4, .reopened,
        .init(persistent: .r6, "forgets the order when opened") { base, _ in ForgetsTheOrder(base: base) }),

      transfers(3, .w2, "keeps the older time of creation of an entry") { KeepsOlderCreation(base: $0) },
      transfers(3, .w2, "goes back from the future in batches") { GoesBackFromTheFuture(base: $0) },
      transfers(4, .w2, "revives times of entries") { RevivesTimesOfEntries(base: $0) },
      .init(
        3, .reopened,
        .init(
          persistent: .r6, "finds entries in the order of their creation when it is opened",
          claiming: [.persistent, .atomicBatches, .preservesTimestamps]
        ) { _, place in SortsByTimeWhenOpened(base: KeptInMemory(place)) }),
      .init(2, .everything, .init(.v3, "gives slices of entries") { GivesSlicesOfEntries(base: $0) }),
      .init(2, .singleCalls, .init(.k3, "lists what keys were made from") { ListsTextsOfKeys(base: $0) }),

      transactions(3, .t2, "inserts entries in transactions", also: [.t1, .w2]) {
        AltersTransactions(base: $0) { InsertsEntries($0) }
      },
      savingBadly(5, .r6, "saves transactions without their order", .order),
      savingBadly(4, .w6, "saves transactions without their times", .times),
      savingBadly(5, .w6, "does not save that a transaction removes all", .removeAll),
      transactions(1, .t2, "hides own writes from keyCount") {
        AltersTransactions(base: $0) { try HidesOwnWrites($0, .keyCount) }
      },
      transactions(2, .t2, "finds what removeAll() has removed", also: [.t1]) {
        AltersTransactions(base: $0) { try HidesOwnWrites($0, .scan, afterRemoveAllOnly: true) }
      },
      transactions(2, .t3, "commits what a body did before it threw") { CommitsThrownBodies(base: $0) },

      .init(3, .batches, .init(.d1, "removes all of many or none") { RemovesAllOrNone(base: $0) }),
      .init(3, .singleCalls, .init(.d1, "keeps empty entries") { KeepsEmptyEntries(base: $0) }),
      .init(4, .singleCalls, .init(.d2, "reads what was removed") { ReadsWhatWasRemoved(base: $0) }),
      .init(2, .batches, .init(.l2, "counts repeats") { CountsRepeats(base: $0) }),
    ]
}

/// The failure of each engine that only fails in rare sequences. Each is searched for once, however many tests need it.
actor ModelBasedFailures {
  static let shared = ModelBasedFailures()

  private var tasks: [String: Task<ConformanceFailure?, Never>] = [:]

  func failure(of testCase: ModelBasedCase) async -> ConformanceFailure? {
    let task =
      tasks[testCase.testDescription]
      ?? Task { await testCase.engineCase.firstFailure(testCase.budget, of: testCase.check) }
    tasks[testCase.testDescription] = task
    return await task.value
  }
}

extension FaultyEngineCase {
  /// Engines that only fail in certain sequences of calls.
  static let ofHistories: [FaultyEngineCase] = ModelBasedCase.all.map(\.engineCase)
}
