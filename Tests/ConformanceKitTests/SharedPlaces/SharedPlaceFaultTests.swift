import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// An engine that fails beside others on its place, or if its path is unusual.
struct SharedPlaceFaultCase: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let name: String
  let fault: SharedPlaceFaultEngine.Fault?
  let isShared: Bool
  /// The checks that it fails.
  let checks: [String]

  var testDescription: String { "\(rule): \(name)" }

  init(
    _ rule: ContractRule, _ name: String, _ fault: SharedPlaceFaultEngine.Fault?, isShared: Bool = true,
    by checks: String...
  ) {
    (self.rule, self.name, self.fault, self.isShared, self.checks) = (rule, name, fault, isShared, checks)
  }

  static let all: [SharedPlaceFaultCase] = ofMemory + ofLocks + ofPaths

  static let ofMemory: [SharedPlaceFaultCase] = [
    .init(.c2, "remembers what was not there", .remembersAbsence, by: "sharing.every-answer"),
    .init(
      .c3, "remembers what was not there, beside a process", .remembersAbsence, by: "processes.every-answer"),
    .init(
      .c2, "remembers for 200 ms what was not there", .remembersAbsenceForAMoment, by: "sharing.every-answer"),
    .init(.c2, "remembers values", .remembersValues, by: "sharing.every-answer"),
    .init(.c2, "remembers its count", .remembersCount, by: "sharing.every-answer"),
    .init(.c3, "remembers its count, beside a process", .remembersCount, by: "processes.every-answer"),
    .init(.c2, "remembers its keys", .remembersKeys, by: "sharing.every-answer"),
    .init(
      .c2, "aborts what others write when it is closed", .abortsCallsOfOthers, by: "crowd.when-it-is-closed"),
    .init(
      .c2, "compares the newest time and the number of entries", .comparesNewestTimes,
      by: "sharing.every-answer"),
    .init(
      .c3, "compares the newest time and the number of entries, beside a process", .comparesNewestTimes,
      by: "processes.every-answer"),
    .init(.c2, "compares the times of entries", .comparesTimesOfEntries, by: "sharing.every-answer"),
    .init(.c2, "remembers pages of scans", .remembersPages, by: "sharing.every-answer"),
    .init(
      .c3, "remembers pages of scans, beside a process", .remembersPages, by: "processes.every-answer"),
    .init(.c2, "remembers times", .remembersTimes, by: "sharing.every-answer"),
    .init(.c3, "compares times of the file in seconds", .comparesSeconds, by: "processes.every-answer"),
    .init(.c3, "compares sizes of the file", .comparesSizes, by: "processes.every-answer"),
    .init(.c2, "counts what is applied alone", .countsApplies, by: "sharing.every-answer"),
    .init(
      .c3, "counts what is applied alone, beside a process", .countsApplies, by: "processes.every-answer",
      "processes.see-each-others-writes"),
    .init(.c2, "does not see what is beyond its map", .mapsTooLittle, by: "sharing.every-answer"),
    .init(
      .c3, "does not see what is beyond its map, beside a process", .mapsTooLittle,
      by: "processes.every-answer"),
    .init(.c2, "follows a log no further than 200 changes", .losesOldLogs, by: "sharing.every-answer"),
    .init(
      .c3, "follows a log of another process no further than 200 changes", .losesOldLogs,
      by: "processes.every-answer"),
    .init(
      .c2, "stays on a file that another engine has compacted", .staysOnCompactedFiles,
      by: "sharing.every-answer"),
    .init(
      .c3, "stays on a file that another process has compacted", .staysOnCompactedFiles,
      by: "processes.every-answer"),
    .init(
      .c2, "lets others see a half of a large value", .savesLargeValuesInSteps, by: "opening.twice-under-load"
    ),
    .init(
      .c3, "lets other processes see a half of a large value", .savesLargeValuesInSteps,
      by: "processes.write-at-the-same-time"),
    .init(
      .c3, "lets other processes see what it writes under a name of its own", .savesNewValuesBeside,
      by: "processes.write-at-the-same-time"),
    .init(
      .c6, "remembers another place once its own is back", .trustsItsFirstDirectory, isShared: false,
      by: "place.replaced-and-put-back"),
    .init(
      .c2, "remembers contents by the spelling of the path", .remembersByName,
      by: "opening.twice-by-any-spelling"),
  ]

  static let ofLocks: [SharedPlaceFaultCase] = [
    .init(
      .c2, "makes an empty file when there was none a moment ago", .initializesTwice, by: "opening.races"),
    .init(
      .c3, "makes an empty file beside another process", .initializesTwice, by: "processes.opening-races"),
    .init(
      .c2, "removes the file of its lock when it is closed", .unlinksItsLock, isShared: false,
      by: "opening.races"),
    .init(
      .c3, "removes the file of its lock beside other processes", .unlinksItsLock, isShared: false,
      by: "processes.opening-races"),
    .init(.c2, "throws when its directory is made meanwhile", .refusesNewDirectories, by: "opening.races"),
    .init(
      .c3, "loses its lock when another descriptor is closed", .locksForTheProcess, isShared: false,
      by: "processes.after-a-second-opening"),
    .init(
      .c3, "locks its place when it first writes", .locksWhenItWrites, isShared: false,
      by: "processes.second-opening"),
    .init(
      .c3, "has its lock beside its place", .locksBesideItsPlace, isShared: false,
      by: "processes.by-another-spelling"),
    .init(.c3, "takes the lock of a process that is stopped", .breaksOldLocks, by: "processes.stopped"),
    .init(
      .c3, "opens what a process has that is stopped", .breaksOldLocks, isShared: false,
      by: "processes.stopped"),
    .init(
      .c3, "opens what a process has had for a day", .breaksLocksOfYesterday, isShared: false,
      by: "processes.clock-jumps"),
    .init(
      .c3, "takes the lock of a call that began a day ago", .breaksLocksOfYesterday,
      by: "processes.clock-jumps-during-a-body"),
    .init(
      .w2, "dates what another process has written after its own last change", .datesAfterItsOwnLast,
      by: "processes.clock-jumps"),
    .init(.c3, "leaves lock files", .leavesLockFiles, by: "processes.stopped"),
    .init(.c3, "waits for one place with a lock for all", .locksAllPlaces, by: "processes.stopped"),
    .init(.c3, "calls a lock of others an input/output error", .callsLocksIO, by: "processes.stopped"),
    .init(
      .c3, "calls a lock that others have for long an input/output error", .callsLongLocksIO,
      by: "processes.stopped"),
    .init(
      .o4, "lets processes inherit its lock", .letsLocksBeInherited, isShared: false,
      by: "dropping.beside-a-child-process"),
    .init(
      .o4, "lets processes inherit its file", .letsFilesBeInherited, by: "dropping.beside-a-child-process"),
    .init(
      .o4, "lets processes inherit the lock of a call", .letsCallLocksBeInherited,
      by: "dropping.beside-a-child-process"),
  ]

  static let ofPaths: [SharedPlaceFaultCase] = [
    .init(.o1, "decodes what looks encoded in a path", .decodesPaths, by: "opening.any-name"),
    .init(.o1, "encodes its path", .encodesPaths, by: "opening.any-name"),
    .init(.o1, "takes # and ? for the end of a path", .cutsPathsAtFragments, by: "opening.any-name"),
    .init(.o1, "cuts long names", .cutsLongPaths, by: "opening.any-name"),
    .init(.o1, "composes accents in its path", .composesPaths, by: "opening.any-name"),
    .init(
      .o1, "takes places for one whose paths are equal as text", .comparesPathsAsText, by: "opening.any-name"),
    .init(.o1, "writes its path in small letters", .lowercasesPaths, by: "opening.any-name"),
    .init(.o1, "trims blanks from its path", .trimsPaths, by: "opening.any-name"),
    .init(.o1, "puts relative paths elsewhere", .anchorsRelativePaths, by: "opening.relative-path"),
  ]

  /// Correct engines, which share their place with others or lock them out.
  static let correct: [SharedPlaceFaultCase] = [
    .init(.c3, "waits for others", nil, by: ""),
    .init(.c3, "keeps others out", nil, isShared: false, by: ""),
    .init(.c3, "waits five seconds for others", .givesUpWaiting, by: ""),
  ]

  static let ids: Set<String> = [
    "sharing.every-answer", "processes.every-answer", "opening.races", "processes.opening-races",
    "processes.after-a-second-opening", "processes.stopped", "dropping.beside-a-child-process",
    "opening.any-name",
    "opening.relative-path", "opening.twice-by-any-spelling", "processes.by-another-spelling",
    "place.replaced-and-put-back", "processes.clock-jumps", "processes.clock-jumps-during-a-body",
    "processes.second-opening",
    "processes.write-at-the-same-time", "opening.twice-under-load",
  ]

  var suite: ConformanceSuite {
    ConformanceSuite(
      name, capabilities: SharedPlaceFaultEngine.promises(isShared: isShared, fault: fault),
      stallTimeout: fault == .locksAllPlaces || fault == .waitsToOpen ? .seconds(24) : .seconds(120),
      budget: fault == .waitsToOpen ? .quick : .standard,
      worker: ConformanceWorker(
        product: "FaultyEngineWorker",
        arguments: ["sharedPlaceFault"] + (isShared ? ["shared"] : []) + (fault.map { [$0.rawValue] } ?? []))
    ) { [isShared, fault] in try SharedPlaceFaultEngine(directory: $0, isShared: isShared, fault: fault) }
  }
}

@Suite("Engines that share a place")
struct SharedPlaceFaultTests {
  @Test(
    "Each faulty engine fails the checks that are named for it", arguments: SharedPlaceFaultCase.all.spread)
  func failsForItsRule(_ engineCase: SharedPlaceFaultCase) async throws {
    for id in engineCase.checks {
      let check = try #require(engineCase.suite.checks.first { $0.id == id })
      var failure: ConformanceFailure?
      var isSkipped = false
      // If processes have to overlap at the right moment, several attempts may be necessary.
      for _ in 0..<20 where failure == nil && !isSkipped {
        let outcome = await check.outcome()
        failure = outcome.failure
        // A fake clock is not available everywhere.
        if case .skipped = outcome { isSkipped = id.hasPrefix("processes.clock-jumps") }
      }
      if isSkipped { continue }
      #expect(failure?.rule == engineCase.rule, "\(failure.map { "\($0)" } ?? "\(id) did not fail it")")
    }
  }

  @Test(
    "An engine that is only correct with one other engine, or outside of transactions, fails",
    arguments: FaultyEngineCase.besideOthers)
  func failsBesideOthers(_ engineCase: FaultyEngineCase) async throws {
    let suite = ConformanceSuite(
      engineCase.name, capabilities: engineCase.capabilities, budget: .quick,
      makeEngine: engineCase.makeEngine)
    let check = try #require(suite.checks.first { $0.id == "sharing.every-answer" })
    #expect(await check.outcome().failure?.rule == engineCase.rule)
  }

  @Test("An engine that confuses stores of two engines breaks rule S9")
  func mixesUpStores() async throws {
    let promises = ReferenceEngine.promises.union(.changeFeed)
    let suite = ConformanceSuite("Numbers", capabilities: promises, stallTimeout: .seconds(24)) {
      NumbersOrigins(base: try ReferenceEngine(directory: $0, claiming: promises))
    }
    let checks = suite.checks.filter { $0.id.hasPrefix("store.follows-another") }
    var failures: [ConformanceFailure] = []
    for check in checks { failures += [await check.outcome().failure].compactMap { $0 } }
    #expect(failures.map(\.check) == ["store.follows-another-engine"])
    #expect(failures.allSatisfy { $0.rule == .s9 })
  }

  @Test("An engine that takes transactions of others for those of a store breaks rule S9")
  func mixesUpTransactions() async throws {
    let promises: EngineCapabilities = [
      .atomicBatches, .snapshotReads, .orderedScans, .transactions, .changeFeed,
    ]
    let suite = ConformanceSuite("Origins", capabilities: promises, stallTimeout: .seconds(8)) { _ in
      HasTheOriginOfTheLast(base: try ReferenceEngine(claiming: promises))
    }
    let check = try #require(suite.checks.first { $0.id == "store.follows-the-engine" })
    #expect(await check.outcome().failure?.rule == .s9)
  }

  @Test("A correct engine passes", arguments: SharedPlaceFaultCase.correct)
  func passes(_ engineCase: SharedPlaceFaultCase) async {
    await engineCase.suite.checks.filter { SharedPlaceFaultCase.ids.contains($0.id) }.runAll()
  }

  @Test("An engine whose opening waits for a minute passes with a suspended process")
  func waits() async throws {
    let engineCase = SharedPlaceFaultCase(.c3, "waits to be opened", .waitsToOpen, isShared: false, by: "")
    try await #require(engineCase.suite.checks.first { $0.id == "processes.stopped" }).run()
  }

  @Test("Every check of these faults has an engine that fails it")
  func isComplete() {
    #expect(SharedPlaceFaultCase.ids.subtracting(SharedPlaceFaultCase.all.flatMap(\.checks)) == [])
  }
}
