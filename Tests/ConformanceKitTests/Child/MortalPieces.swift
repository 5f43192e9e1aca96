import Foundation
import MuseumChild
import StockroomCore
import Testing

@testable import ConformanceKit

/// An engine that breaks when its process dies, or beside another process.
struct MortalPiece: Sendable, CustomTestStringConvertible {
  let name: String
  /// The rules of which one is broken, as it happens.
  let rules: Set<ContractRule>
  /// The checks that convict it every time.
  let checks: Set<String>
  let flaw: MortalEngine.Flaw
  /// Whether it lets several processes in.
  let isShared: Bool
  /// Whether it says so.
  let claimsToShare: Bool

  var testDescription: String { "\(rules.map(\.rawValue).sorted().joined(separator: ", ")): \(name)" }

  init(
    _ rules: Set<ContractRule>, _ name: String, _ flaw: MortalEngine.Flaw, by checks: Set<String>,
    isShared: Bool = false, claimsToShare: Bool? = nil
  ) {
    (self.rules, self.name, self.flaw, self.checks) = (rules, name, flaw, checks)
    (self.isShared, self.claimsToShare) = (isShared, claimsToShare ?? isShared)
  }

  /// Those that break when their process dies.
  static let ofKills: [MortalPiece] = [
    .init(
      [.w6], "writes when the next write comes", .acknowledgesEarly,
      by: ["killed.while-writing-batches", "killed.while-writing-one-by-one", "killed.while-chains-run"]),
    .init(
      [.w6], "has one task write for others that do not wait", .acknowledgesTheGroupEarly,
      by: ["killed.while-several-tasks-write"]),
    .init(
      [.w6], "notes removals with the next write", .notesRemovalsLater,
      by: ["killed.while-writing-one-by-one"]),
    .init(
      [.w4, .s3], "logs a batch entry by entry", .logsEntryByEntry,
      by: ["killed.while-writing-batches", "killed.while-chains-run"]),
    .init([.r6, .s4], "recovers in the order of keys", .losesTheOrder, by: ["killed.while-writing-batches"]),
    .init(
      [.w2], "recovers with the time of the recovery", .makesUpTimes, by: ["killed.while-writing-one-by-one"]),
    .init(
      [.w6, .w4, .w2], "rewrites its file in place when it opens it", .rewritesInPlace,
      by: ["killed.while-opening"]),
    .init(
      [.w6, .s3], "refuses a file that ends in the middle of a line", .refusesTornLines,
      by: ["killed.while-writing-batches"]),
    .init(
      [.w6, .s3], "traps when a file ends in the middle of a line", .trapsOnTornLines,
      by: ["killed.while-writing-batches"]),
    .init(
      [.w6, .s3, .c3], "keeps a lock file when it is killed", .leavesItsLock,
      by: ["killed.while-writing-batches", "processes.killed-holder"]),
  ]

  /// Those that break beside another process.
  static let ofTwoProcesses: [MortalPiece] = [
    .init([.c3], "has no lock", .hasNoLock, by: ["processes.second-opening"]),
    .init([.o2], "does not say what is locked", .locksWithoutName, by: ["processes.second-opening"]),
    .init([.c3, .w6], "keeps its lock when it is closed", .keepsItsLock, by: ["processes.second-opening"]),
    .init(
      [.c3], "says that it can be shared, and cannot", .prints, by: ["processes.second-opening"],
      claimsToShare: true),
    .init(
      [.c3], "can be shared, and does not say so", .prints, by: ["processes.second-opening"], isShared: true,
      claimsToShare: false),
    .init(
      [.c3, .w6, .s3], "leaves the lock of a call when it is killed", .leavesLocksOfCalls,
      by: ["processes.outlive-each-other"], isShared: true),
    .init(
      [.c3, .w6, .w4, .s3, .r6, .w2, .s4], "appends where the file ended when it last looked",
      .overwritesOthers,
      by: ["processes.see-each-others-writes", "processes.write-at-the-same-time"], isShared: true),
    .init(
      [.c3], "looks at its file only when it opens it", .looksOnlyWhenOpening,
      by: ["processes.see-each-others-writes"], isShared: true),
  ]
}

extension ConformanceSuite {
  /// The checks that need a child, for an engine of the museum.
  static func mortal(
    _ name: String, isShared: Bool, claimsToShare: Bool? = nil, flaw: MortalEngine.Flaw? = nil,
    kills: Int = 30, timeLimit: Duration = .seconds(120)
  ) -> ConformanceSuite {
    var effort = ConformanceEffort()
    effort.kills = kills
    let arguments = (isShared ? ["shared"] : []) + (flaw.map { [$0.rawValue] } ?? [])
    return ConformanceSuite(
      name, capabilities: MortalEngine.promises(isShared: claimsToShare ?? isShared), timeLimit: timeLimit,
      effort: effort,
      child: ConformanceChild(product: "MuseumChild", arguments: arguments)
    ) { try MortalEngine(directory: $0, isShared: isShared, flaw: flaw == .trapsOnTornLines ? nil : flaw) }
  }

  /// The checks of this file's subject.
  var checksOfProcesses: [ConformanceCheck] {
    checks.filter { $0.id.hasPrefix("killed.") || $0.id.hasPrefix("processes.") }
  }
}

@Suite("Engines that break when a process dies, or beside another")
struct MortalEngineTests {
  @Test(
    "Each is convicted, for a rule that it breaks, by the checks that look for that",
    arguments: MortalPiece.ofKills + MortalPiece.ofTwoProcesses)
  func isConvicted(_ piece: MortalPiece) async throws {
    let suite = ConformanceSuite.mortal(
      piece.name, isShared: piece.isShared, claimsToShare: piece.claimsToShare, flaw: piece.flaw)
    var failures: [ConformanceFailure] = []
    var missed = piece.checks
    // A process is killed at random moments, so that it takes another look now and then.
    for _ in 0..<4 {
      for check in suite.checks where missed.contains(check.id) {
        failures += [await check.outcome().failure].compactMap { $0 }
      }
      missed.subtract(failures.map(\.check))
    }
    #expect(missed.isEmpty)
    let unjustified = failures.filter { !piece.rules.contains($0.rule) }
    #expect(
      unjustified.isEmpty,
      "\(unjustified.map { "\($0.rule) \($0.check): \($0.happened)" }.joined(separator: "\n"))")
  }

  @Test("Every check of the subject convicts some engine")
  func isComplete() {
    let convicting = (MortalPiece.ofKills + MortalPiece.ofTwoProcesses).reduce(into: Set()) {
      $0.formUnion($1.checks)
    }
    let checks = ConformanceSuite.mortal("", isShared: true).checksOfProcesses.map(\.id)
    #expect(Set(checks).subtracting(convicting) == [])
  }

  @Test(
    "A correct engine passes, for one process",
    arguments: ConformanceSuite.mortal("Log", isShared: false, kills: 10).checksOfProcesses)
  func passesAlone(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test(
    "A correct engine passes, for several processes, even if it prints",
    arguments: ConformanceSuite.mortal("Shared log", isShared: true, flaw: .prints, kills: 10)
      .checksOfProcesses)
  func passesShared(_ check: ConformanceCheck) async throws { try await check.run() }

  @Test("An engine with six methods passes, whose batches may be half there")
  func passesWithoutBatches() async throws {
    let suite = ConformanceSuite(
      "Entry by entry", capabilities: .persistent,
      child: ConformanceChild(
        product: "MuseumChild", arguments: [MortalEngine.Flaw.logsEntryByEntry.rawValue])
    ) { try MortalEngine(directory: $0, flaw: .logsEntryByEntry) }
    for check in suite.checksOfProcesses { try await check.run() }
  }
}
