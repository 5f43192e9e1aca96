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
  let makeEngine: @Sendable (URL) async throws -> any StorageEngine

  var testDescription: String { "\(rule): \(name)" }

  /// A piece that keeps its entries in memory.
  init(
    _ rule: ContractRule, _ name: String, also: Set<ContractRule> = [],
    claiming capabilities: EngineCapabilities = [.atomicBatches, .snapshotReads, .orderedScans],
    makeEngine: @escaping @Sendable (ReferenceEngine) -> any StorageEngine
  ) {
    (self.name, self.rule, self.also, self.capabilities) = (name, rule, also, capabilities)
    self.makeEngine = { _ in makeEngine(try ReferenceEngine()) }
  }

  /// A piece that keeps its entries in a file.
  init(
    persistent rule: ContractRule, _ name: String, flaw: ReferenceEngine.Flaw? = nil,
    also: Set<ContractRule> = [],
    claiming capabilities: EngineCapabilities = ReferenceEngine.promises,
    makeEngine: @escaping @Sendable (ReferenceEngine, URL) -> any StorageEngine = { base, _ in base }
  ) {
    (self.name, self.rule, self.also, self.capabilities) = (name, rule, also, capabilities)
    self.makeEngine = { makeEngine(try ReferenceEngine(directory: $0, flaw: flaw), $0) }
  }

  static let all: [MuseumPiece] = [
    .init(.k1, "answers for keys that are too long") { AnswersForLongKeys(base: $0) },
    .init(.k2, "ignores case", also: [.k3]) { RenamingEngine(base: $0) { $0.lowercased() } },
    .init(.k2, "composes accents", also: [.k3]) {
      RenamingEngine(base: $0) { $0.precomposedStringWithCanonicalMapping }
    },
    .init(.k2, "trims blanks", also: [.k3]) {
      RenamingEngine(base: $0) { $0.trimmingCharacters(in: .whitespaces) }
    },
    .init(.k2, "ends keys at NUL", also: [.k3]) {
      RenamingEngine(base: $0) { String($0.prefix { $0 != "\0" }) }
    },
    .init(.k2, "looks at 255 bytes of a key", also: [.k3]) {
      RenamingEngine(base: $0) { String(decoding: $0.utf8.prefix(255), as: UTF8.self) }
    },
    .init(.k2, "decodes percent signs", also: [.k3]) {
      RenamingEngine(base: $0) { $0.removingPercentEncoding ?? $0 }
    },
    .init(.k3, "lists keys in lower case") { ListsLowercaseKeys(base: $0) },
    .init(.k3, "lists hashes of keys", also: [.r3]) { ListsHashedKeys(base: $0) },
    .init(persistent: .k4, "writes to paths") { FollowsPaths(base: $0, directory: $1) },
    .init(persistent: .k4, "reads from paths") { ReadsPaths(base: $0, directory: $1) },

    .init(.v1, "takes empty for absent", also: [.v2, .w1, .w3]) { TakesEmptyForAbsent(base: $0) },
    .init(.v2, "keeps 65,536 bytes of a value") {
      ChangingEngine(base: $0, onTheWayIn: { $0.prefix(65_536) })
    },
    .init(.v2, "takes values for text") {
      ChangingEngine(base: $0, onTheWayIn: { Data(String(decoding: $0, as: UTF8.self).utf8) })
    },
    .init(.v3, "returns slices") { ReturnsSlices(base: $0) },

    .init(.w1, "reads stale values") { ReadsStaleValues(base: $0) },
    .init(.w1, "leaves the tail of the old value", also: [.v1, .c1]) { LeavesTheTail(base: $0) },
    .init(.w2, "renews createdAt with every write") { RenewsCreatedAt(base: $0) },
    .init(.w2, "rounds times to seconds") { RoundsToSeconds(base: $0) },
    .init(.w2, "never renews createdAt") { NeverRenewsCreatedAt(base: $0) },
    .init(.w3, "keeps the first of two entries in a batch") { FirstEntryWins(base: $0) },
    .init(.w3, "refuses empty batches") { RefusesEmptyBatches(base: $0) },
    .init(.w4, "validates keys on the way") { ValidatesOnTheWay(base: $0) },
    .init(.w4, "writes batches in parts") { WritesBatchesInParts(base: $0) },
    .init(.w5, "removes before it writes") { RemovesFirst(base: $0) },
    .init(persistent: .w6, "saves when it is closed", flaw: .forgetsUntilClosed, also: [.f1]),
    .init(persistent: .w6, "does not say that it is persistent") { base, _ in
      KeepsQuiet(base: base, silence: .persistent)
    },

    .init(.r1, "throws for absent keys", also: Set(ContractRule.allCases)) { ThrowsForAbsentKeys(base: $0) },
    .init(.r2, "answers in its own order") { AnswersInItsOwnOrder(base: $0) },
    .init(.r2, "answers repeats once") { AnswersRepeatsOnce(base: $0) },
    .init(.r2, "answers a thousand keys") { AnswersAThousandKeys(base: $0) },
    .init(.r3, "gives equal values once") { GivesEqualValuesOnce(base: $0) },
    .init(.r3, "reads everything in parts") { ReadsEverythingInParts(base: $0) },
    .init(.r4, "gives nothing when a read fails", also: [.o3]) { SaysNilWhenReadingFails(base: $0) },
    .init(.r5, "scans in the order of characters") { ScansByCharacters(base: $0) },
    .init(.r5, "scans from the bound") { ScansFromTheBound(base: $0) },
    .init(.r5, "sorts for each scan") { SortsForEachScan(base: $0) },
    .init(.r6, "lists entries by key") { ListsEntriesByKey(base: $0) },
    .init(.r6, "lists entries by last write") { ListsEntriesByLastWrite(base: $0) },

    .init(.d1, "cannot remove absent keys") { CannotRemoveAbsentKeys(base: $0) },
    .init(persistent: .d2, "removes the files of others") { RemovesTheDirectory(base: $0, directory: $1) },
    .init(.d2, "removes almost everything") { RemovesAlmostEverything(base: $0) },
    .init(.l1, "finds keys in its own order") { FindsKeysInItsOwnOrder(base: $0) },
    .init(.l2, "counts overwrites") { CountsOverwrites(base: $0) },

    .init(.c1, "loses concurrent writes", claiming: []) { _ in LosesConcurrentWrites() },
    .init(persistent: .c2, "shares nothing between two engines", flaw: .sharesNothing),
    .init(.c4, "throws after the work") { ThrowsAfterTheWork(base: $0) },
    .init(.c4, "stops half way") { StopsHalfWay(base: $0) },
    .init(.c4, "gives up reading") { GivesUpReading(base: $0) },

    .init(persistent: .o1, "needs its directory", flaw: .needsDirectory, also: [.o2]),
    .init(persistent: .o2, "removes what is in the way", flaw: .clearsTheWay),
    .init(persistent: .o3, "refuses only writes when closed", flaw: .refusesOnlyWrites),
    .init(persistent: .o4, "keeps its file open", flaw: .keepsFileOpen),
    .init(persistent: .f1, "calls a full disk an input/output error", flaw: .reportsFullDiskAsIO),
    .init(persistent: .f1, "remembers writes that failed", flaw: .remembersFailedWrites, also: [.f3]),
    .init(persistent: .f2, "starts anew when damaged", flaw: .startsAnewWhenDamaged, also: [.o2]),
    .init(persistent: .f2, "does not look at checksums", flaw: .ignoresChecksums),
    .init(persistent: .f3, "calls read-only media an input/output error", flaw: .reportsReadOnlyAsIO),
  ]
}

@Suite("Engines that break a rule are convicted of breaking it")
struct MuseumTests {
  @Test(
    "Each broken engine fails for its rule, and for no other that it could keep", arguments: MuseumPiece.all)
  func isConvicted(_ piece: MuseumPiece) async throws {
    let suite = ConformanceSuite(piece.name, capabilities: piece.capabilities, makeEngine: piece.makeEngine)
    var failures: [ConformanceFailure] = []
    var isUndecided = false
    // Stores have a museum of their own, and none can be better than its engine.
    for check in suite.checks where !check.rule.isForStores {
      switch await check.outcome() {
      case .passed: break
      case .failed(let failure): failures.append(failure)
      case .skipped:
        isUndecided = isUndecided || (check.rule == piece.rule && [.f1, .f3].contains(check.rule))
      }
    }
    #expect(failures.contains { $0.rule == piece.rule } || isUndecided)
    let unjustified = failures.filter { $0.rule != piece.rule && !piece.also.contains($0.rule) }
    #expect(
      unjustified.isEmpty, "\(unjustified.map { "\($0.check): \($0.happened)" }.joined(separator: "\n"))")
  }

  @Test("An engine that waits on the threads of the cooperative pool is convicted")
  func blocking() async {
    // In a process of its own, since it holds up everything else in the process.
    await #expect(processExitsWith: .success) {
      let suite = ConformanceSuite("Blocking", capabilities: []) { _ in
        BlocksTheCaller(base: try ReferenceEngine())
      }
      let check = try #require(suite.checks.first { $0.id == "cooperation.while-writing" })
      let failure = await check.outcome().failure
      #expect(failure?.rule == .c5)
    }
  }

  @Test("Every rule that has checks has an engine or a store that breaks it")
  func isComplete() {
    let all: EngineCapabilities = EngineCapabilities.named.reduce(into: []) { $0.formUnion($1.capability) }
    let checked = Set(
      ConformanceSuite("", capabilities: all) { _ in try ReferenceEngine() }.checks.map(\.rule))
    let broken = Set(MuseumPiece.all.map(\.rule) + StoreMuseumPiece.all.map(\.rule))
    // C3 is only about what is reported, so far, and C5 has a test of its own.
    #expect(checked.subtracting(broken) == [.c3, .c5])
  }
}
