import ConformanceKit
import Foundation
import StockroomCore
import Testing

/// What the kit says about each piece, which is examined once, however many tests ask.
actor Examinations {
  static let shared = Examinations()

  private var ofEngines: [String: Task<[String: ConformanceOutcome], Never>] = [:]
  private var ofStores: [String: Task<[String: ConformanceOutcome], Never>] = [:]

  /// How each check ended that was made of the engine, by the check's identifier.
  func outcomes(of piece: MuseumPiece) async -> [String: ConformanceOutcome] {
    let task = ofEngines[piece.testDescription] ?? Task { await Self.make(piece.checks) }
    ofEngines[piece.testDescription] = task
    return await task.value
  }

  /// How each check ended that was made of the store, by the check's identifier.
  func outcomes(of piece: StoreMuseumPiece) async -> [String: ConformanceOutcome] {
    let task = ofStores[piece.testDescription] ?? Task { await Self.make(piece.checks) }
    ofStores[piece.testDescription] = task
    return await task.value
  }

  private static func make(_ checks: [ConformanceCheck]) async -> [String: ConformanceOutcome] {
    var outcomes: [String: ConformanceOutcome] = [:]
    for check in checks { outcomes[check.id] = await check.outcome() }
    return outcomes
  }
}

extension MuseumPiece {
  /// The checks that are made of the piece: those of the rules that it breaks and, in an exhaustive run, of all others,
  /// which it must pass.
  ///
  /// Left out are those of stores, none of which can be better than its engine; those of rule C5, which hold up everything
  /// else in the process; those that search, which have engines of their own; and those that take long and are about
  /// other rules.
  var checks: [ConformanceCheck] {
    ConformanceSuite(name, capabilities: capabilities, timeLimit: timeLimit, makeEngine: makeEngine).checks
      .filter { check in
        if check.rule.isForStores || check.rule == .c5 || Self.isSearch(check.id) { return false }
        if check.rule == rule { return true }
        return (TestRun.isExhaustive || also.contains(check.rule)) && !Self.longChecks.contains(check.id)
      }
  }

  /// Whether a check looks for faults of any kind. Its tests are in folders of their own, and see it convict.
  static func isSearch(_ id: String) -> Bool {
    ["histories.", "linearizability.", "killed.", "processes.", "power.", "clock."].contains {
      id.hasPrefix($0)
    }
      || [
        "damage.at-random", "faults.full-disk-at-every-step", "faults.file-size-limit",
        "faults.no-descriptors-while-open", "opening.without-descriptors",
        "dropping.after-many-failed-openings",
      ].contains(id)
  }

  static let longChecks: Set<String> = [
    "values.64-mebibytes", "values.beyond-64-mebibytes", "values.beyond-64-mebibytes-in-batches",
    "values.of-megabytes", "write.beyond-10000-entries", "batches.of-any-size",
    "reads.of-100000-keys", "faults.full-disk",
    "faults.full-disk-and-batches",
    "keys.thousands-with-a-long-prefix", "scan.costs-what-it-returns", "damage.anywhere", "closing.waits",
    "batches.appear-in-order", "reads.readAllData-shows-one-moment",
    "reads.readAllDataAndKeys-shows-one-moment",
    "reads.readAllEntries-shows-one-moment", "reads.scan-shows-one-moment", "reads.allKeys-shows-one-moment",
  ]
}

/// How much the tests of this process do.
enum TestRun {
  /// Whether every faulty engine meets every check, as `make test-exhaustive` has it: it takes minutes.
  static let isExhaustive = ProcessInfo.processInfo.environment["STOCKROOM_EXHAUSTIVE_TESTS"] != nil
}

extension MuseumPiece {
  /// What the kit says about the engine that is made for a check of rule C5.
  static func failureOfCooperation(_ id: String) async -> ConformanceFailure? {
    guard let makeEngine = ofCooperation[id] else { return nil }
    let suite = ConformanceSuite("Blocking", capabilities: []) { _ in
      makeEngine(try ReferenceEngine(claiming: []))
    }
    return await suite.checks.first { $0.id == id }?.outcome().failure
  }
}

@Suite("Engines that break a rule are convicted of breaking it")
struct MuseumTests {
  @Test(
    "Each broken engine fails for its rule, and for no other that it could keep", arguments: MuseumPiece.all)
  func isConvicted(_ piece: MuseumPiece) async throws {
    let outcomes = await Examinations.shared.outcomes(of: piece)
    let failures = outcomes.values.compactMap(\.failure)
    let isUndecided = piece.checks.contains { check in
      guard check.rule == piece.rule, case .skipped = outcomes[check.id] else { return false }
      return [.f1, .f3, .f4].contains(check.rule)
    }
    var isConvicted = failures.contains { $0.rule == piece.rule } || isUndecided
    // Where tasks have to meet, it takes another look now and then on a busy machine.
    for _ in 0..<10 where !isConvicted {
      for check in piece.checks where check.rule == piece.rule && !isConvicted {
        isConvicted = await check.outcome().failure?.rule == piece.rule
      }
    }
    #expect(isConvicted)
    let unjustified = failures.filter { $0.rule != piece.rule && !piece.also.contains($0.rule) }
    #expect(
      unjustified.isEmpty,
      "\(unjustified.map { "\($0.rule) \($0.check): \($0.happened)" }.joined(separator: "\n"))")
  }

  @Test("Every check convicts an engine or a store")
  func everyCheckConvicts() async {
    var (convicting, skipped): (Set<String>, Set<String>) = ([], [])
    func note(_ outcomes: [String: ConformanceOutcome]) {
      for (check, outcome) in outcomes {
        switch outcome {
        case .failed: convicting.insert(check)
        case .skipped, .couldNotRun: skipped.insert(check)
        case .passed: break
        }
      }
    }
    for piece in MuseumPiece.all { note(await Examinations.shared.outcomes(of: piece)) }
    for piece in StoreMuseumPiece.all { note(await Examinations.shared.outcomes(of: piece)) }
    let all: EngineCapabilities = EngineCapabilities.named.reduce(into: []) { $0.formUnion($1.capability) }
    let checks = ConformanceSuite("", capabilities: all) { _ in try ReferenceEngine() }.checks.map(\.id)
    // What cannot be made here convicts nobody here, and what waits has a test of its own.
    var idle = checks.filter {
      !convicting.contains($0) && !skipped.contains($0) && MuseumPiece.ofCooperation[$0] == nil
        && !MuseumPiece.isSearch($0)
    }
    // Where readers have to come at the right moment, it takes another look now and then on a busy machine.
    for _ in 0..<10 where !idle.isEmpty {
      for piece in MuseumPiece.all {
        for check in piece.checks where check.rule == piece.rule && idle.contains(check.id) {
          if await check.outcome().failure != nil { idle.removeAll { $0 == check.id } }
        }
      }
    }
    #expect(idle.isEmpty, "\(idle.joined(separator: "\n"))")
  }

  @Test(
    "An engine that waits on the threads of the cooperative pool is convicted",
    arguments: MuseumPiece.ofCooperation.keys.sorted())
  func blocking(_ id: String) async {
    // In a process of its own, since it holds up everything else in the process.
    await #expect(processExitsWith: .success) { [id = id as String] in
      // On a machine that is busy with all the other tests, it takes now and then a second look.
      var rule: ContractRule?
      for _ in 0..<5 where rule == nil { rule = await MuseumPiece.failureOfCooperation(id)?.rule }
      #expect(rule == .c5)
    }
  }

  @Test("Every rule has an engine or a store that breaks it, and there are eighty and more")
  func isComplete() {
    let broken = Set(MuseumPiece.all.map(\.rule) + StoreMuseumPiece.all.map(\.rule)).union([.c5, .o6])
    #expect(broken == Set(ContractRule.allCases))
    #expect(MuseumPiece.all.count >= 80)
    #expect(Set(MuseumPiece.all.map(\.testDescription)).count == MuseumPiece.all.count)
  }
}
