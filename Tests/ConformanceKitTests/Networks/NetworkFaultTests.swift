import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import ConformanceKit

/// An engine or a server that breaks a rule about networks, and the rule.
struct NetworkFaultCase: Sendable, CustomTestStringConvertible {
  let rule: ContractRule
  let fault: WireEngine.Fault
  var replicatesLate = false
  /// The check that detects it.
  let check: String

  var testDescription: String { "\(rule): \(replicatesLate ? "replicates late" : fault.rawValue)" }

  static let all: [NetworkFaultCase] = [
    .init(rule: .n1, fault: .waitsForEver, check: "network.silent-read"),
    .init(rule: .n1, fault: .waitsForEver, check: "network.silent-write"),
    .init(rule: .n1, fault: .takesLongerThanItsLimit, check: "network.away-write"),
    .init(rule: .n1, fault: .takesLongerThanItsLimit, check: "network.silent-read"),
    .init(rule: .n1, fault: .takesOneReadForAMessage, check: "network.dripping"),
    .init(rule: .n1, fault: .ignoresCancellation, check: "network.cancelled-read"),
    .init(rule: .n1, fault: .isCancelledAtItsLimit, check: "network.cancelled-read"),
    .init(rule: .n1, fault: .saysNothingIsThere, check: "network.away-read"),
    .init(rule: .n1, fault: .saysNothingIsThere, check: "network.silent-read-all"),
    .init(rule: .n1, fault: .waitsForTheRest, check: "network.stalled-read"),
    .init(rule: .n1, fault: .saysNothingExists, check: "network.away-any-call"),
    .init(rule: .n1, fault: .waitsForEver, check: "network.silent-any-call"),
    .init(rule: .n1, fault: .waitsForTheRest, check: "network.stalled-any-call"),
    .init(rule: .n1, fault: .waitsForEverToBeOpened, check: "network.silent-opening"),
    .init(rule: .n1, fault: .connectsWithoutALimit, check: "network.unreachable-read"),
    .init(rule: .n1, fault: .connectsWithoutALimit, check: "network.unreachable-write"),
    .init(rule: .n1, fault: .connectsWithoutALimit, check: "network.unreachable-any-call"),
    .init(rule: .n1, fault: .connectsWithoutALimit, check: "network.unreachable-opening"),
    .init(rule: .n1, fault: .connectsThoughCancelled, check: "network.unreachable-cancelled-read"),
    .init(rule: .n1, fault: .connectsThoughCancelled, check: "network.unreachable-cancelled-write"),
    .init(rule: .n1, fault: .waitsForEachByte, check: "network.trickling-any-call"),
    .init(rule: .n1, fault: .sendsWithoutALimit, check: "network.silent-any-call"),
    .init(rule: .n1, fault: .cannotCancelRemovals, check: "network.cancelled-any-call"),
    .init(rule: .n1, fault: .cannotCancelSubscriptions, check: "network.cancelled-any-call"),
    .init(rule: .n1, fault: .cannotCancelOpening, check: "network.cancelled-any-call"),
    .init(rule: .n1, fault: .cannotCancelLargeWrites, check: "network.cancelled-any-call"),
    .init(rule: .n1, fault: .keepsCancelledConnections, check: "network.cancelled-read"),
    .init(rule: .n1, fault: .dropsLateAnswers, check: "network.cancelled-read"),
    .init(rule: .n1, fault: .countsFromItsTurn, check: "network.silent-crowd"),
    .init(rule: .n1, fault: .leavesCallsAtClose, check: "network.silent-opening"),
    .init(rule: .n1, fault: .takesOneReadForAChange, check: "network.dripping"),
    .init(rule: .n1, fault: .takesOneReadForKeys, check: "network.dripping"),
    .init(rule: .n1, fault: .takesSilenceForSuccess, check: "network.away-batch"),
    .init(rule: .n1, fault: .callsCancelledWritesUndone, check: "network.cancelled-write"),
    .init(rule: .n2, fault: .repeatsBlindly, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .repeatsRemovalsBlindly, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .repeatsRemovalsOfAllBlindly, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .takesLostRemovalsForDone, check: "network.cut-under-load"),
    .init(rule: .n2, fault: .callsLostAnswersFailures, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .callsLostAnswersSuccesses, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .givesUpReads, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .neverReadsAgain, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .readsAgainOnce, check: "network.pool-of-lost-connections"),
    .init(rule: .n2, fault: .readsNoKeysAgain, check: "network.pool-of-lost-connections"),
    .init(rule: .n2, fault: .takesTheEndForTheRest, check: "network.cut-any-read"),
    .init(rule: .n2, fault: .neverFindsOut, check: "network.cut-anywhere"),
    .init(rule: .n2, fault: .neverKnows, check: "network.cut-under-load"),
    .init(rule: .n3, fault: .staysDisconnected, check: "network.server-restarts"),
    .init(rule: .n3, fault: .keepsSilentConnections, check: "network.half-open"),
    .init(rule: .n3, fault: .losesItsWayToRemoveAll, check: "network.server-restarts"),
    .init(rule: .n4, fault: .none, replicatesLate: true, check: "network.failover"),
    .init(rule: .n5, fault: .showsThePassword, check: "network.refused"),
    .init(rule: .n5, fault: .callsARefusalAnError, check: "network.refused"),
    .init(rule: .n5, fault: .showsThePasswordWhileAway, check: "network.away-secrets"),
    .init(rule: .n5, fault: .describesItsPassword, check: "network.away-secrets"),
    .init(rule: .n5, fault: .showsThePasswordInDoubt, check: "network.silent-write"),
    .init(rule: .n6, fault: .connectsForEachCall, check: "network.connections-are-bounded"),
    .init(rule: .n6, fault: .connectsForEachList, check: "network.connections-are-bounded"),
    .init(rule: .n6, fault: .connectsForEachSubscriber, check: "network.connections-are-bounded"),
    .init(
      rule: .n6, fault: .abandonsCancelledConnections, check: "network.cancelled-calls-leave-no-connections"),
    .init(rule: .n6, fault: .forgetsLostConnections, check: "network.lost-connections-are-closed"),
    .init(rule: .n6, fault: .forgetsSilentConnections, check: "network.silent-connections-are-closed"),
    .init(rule: .n6, fault: .forgetsRefusedConnections, check: "network.lost-connections-are-closed"),
    .init(rule: .n6, fault: .losesItsLimit, check: "network.cut-under-load"),
    .init(rule: .x5, fault: .comparesCounts, check: "network.failover"),
    .init(rule: .x5, fault: .staysDeaf, check: "network.changes-after-cuts"),
    .init(rule: .x5, fault: .listensOnce, check: "network.changes-after-cuts"),
    .init(rule: .x5, fault: .listensOnce, check: "network.changes-after-a-restart"),
    .init(rule: .x5, fault: .listensAgainSilently, check: "network.changes-after-cuts"),
    .init(rule: .x5, fault: .asksWhatIsThere, check: "network.changes-after-cuts"),
  ]

  private var stallTimeout: Duration {
    switch fault {
    case .none: .seconds(300)
    case .comparesCounts: .seconds(30)
    // The check repeats a failing call for half of the stall timeout.
    case .losesItsWayToRemoveAll: .seconds(2)
    // It waits for an element that never comes.
    case .asksWhatIsThere: .seconds(4)
    default: .seconds(8)
    }
  }

  /// The checks of networks for an engine with the fault.
  ///
  /// - Parameter timeLimit: That of engines that do not connect through the proxy.
  func checks(
    _ level: ConformanceBudget.Level = .standard, timeLimit: Duration = WireEngine.timeLimit
  ) throws -> [ConformanceCheck] {
    let server = try WireServer(lag: replicatesLate ? 100 : 0)
    let fault = fault
    let suite = ConformanceSuite(
      "Wire", capabilities: WireEngine.promises,
      // Only faulty engines hang. One of them fails with another rule than that of its check.
      stallTimeout: stallTimeout,
      budget: ConformanceBudget(level),
      server: ConformanceServer(
        address: server.address,
        timeLimit: fault == .takesLongerThanItsLimit ? WireEngine.timeLimit / 10 : WireEngine.timeLimit,
        maximumConnections: WireEngine.maximumConnections, secret: WireServer.password,
        refusals: [
          .init("a wrong password", secret: "let me in") {
            try await WireEngine($0, port: $1, password: "let me in", fault: fault)
          }
        ],
        start: { server.start() }, kill: { server.kill() }, failOver: { server.failOver() }
      ) { try await WireEngine($0, port: $1, fault: fault) }
    ) { directory in
      server.start()
      guard case .loopback(let port) = server.address else { throw StorageError(.io, "It has no port.") }
      return try await WireEngine(directory, port: port, fault: fault, timeLimit: timeLimit)
    }
    return suite.checks
  }
}

@Suite("Engines with a server")
struct NetworkFaultTests {
  @Test("Each faulty engine fails the check of its rule", arguments: NetworkFaultCase.all.spread)
  func fails(_ faultCase: NetworkFaultCase) async throws {
    // Tasks overlap by chance, so another attempt may find what the first one has not. The first one is short.
    for look in 0..<20 {
      let level = look == 0 ? ConformanceBudget.Level.quick : .standard
      let check = try #require(try faultCase.checks(level).first { $0.id == faultCase.check })
      guard let failure = await check.outcome().failure else { continue }
      #expect(failure.rule == faultCase.rule, "\(failure)")
      return
    }
    Issue.record("It passes.")
  }

  @Test("A write that the server performs after its call was cancelled is always detected")
  func lateWrites() async throws {
    let late = NetworkFaultCase(
      rule: .n1, fault: .callsCancelledWritesUndone, check: "network.cancelled-write")
    for _ in 0..<5 {
      let check = try #require(try late.checks().first { $0.id == late.check })
      #expect(await check.outcome().failure?.rule == .n1)
    }
  }

  /// A check of a correct engine with an unusual connection.
  private func unusualCheck(
    _ id: String, refusals: [ConformanceServer.Refusal] = [],
    makeEngine: @escaping @Sendable (URL, UInt16) async throws -> any StorageEngine
  ) throws -> ConformanceCheck {
    let server = try WireServer(lag: 0)
    let suite = ConformanceSuite(
      "Unusual", capabilities: WireEngine.promises, stallTimeout: .seconds(300), budget: .quick,
      server: ConformanceServer(
        address: server.address, timeLimit: WireEngine.timeLimit,
        maximumConnections: WireEngine.maximumConnections, refusals: refusals,
        start: { server.start() }, kill: { server.kill() }, makeEngine: makeEngine)
    ) { _ in throw StorageError(.unavailable, "It is reached through the proxy alone.") }
    return try #require(suite.checks.first { $0.id == id })
  }

  private func expectSuccess(
    of id: String, refusals: [ConformanceServer.Refusal] = [],
    makeEngine: @escaping @Sendable (URL, UInt16) async throws -> any StorageEngine
  ) async throws {
    try await unusualCheck(id, refusals: refusals, makeEngine: makeEngine).run()
  }

  /// Regression: more than half of its reads threw after lost connections, which was enough to fail.
  @Test("An engine whose reads fail passes if no other engine reaches the server in time either")
  func slowServer() async throws {
    try await expectSuccess(of: "network.pool-of-lost-connections") {
      try await SlowlyReachedEngine($0, port: $1)
    }
  }

  /// Regression: if its calls had been cancelled in time, the check assumed that the engine had noticed.
  @Test("An engine that notices one cancellation only after its time limit does not fail")
  func lateCancellation() async throws {
    try await expectSuccess(of: "network.cancelled-read") { try await HeldUpAtFirst($0, port: $1) }
  }

  @Test("An engine that does not reach the server in time when it is opened does not fail")
  func lateOpening() async throws {
    let attempts = AtomicCounter()
    try await expectSuccess(of: "network.dripping") {
      if attempts.increment() <= 2 {
        throw StorageError(.unavailable, "The server has not answered in time.")
      }
      return try await WireEngine($0, port: $1, fault: .none)
    }
  }

  /// Regression: the second opening threw `locked`, as it may without the capability multiProcess, which failed the
  /// checks.
  @Test(
    "An engine whose place can be open only once does not fail",
    arguments: ["network.cut-anywhere", "network.away-any-call", "network.cancelled-any-call"])
  func exclusivePlace(_ id: String) async throws {
    let check = try unusualCheck(id) { try await HasItsPlaceAlone($0, port: $1) }
    guard case .skipped(let reason) = await check.outcome() else {
      Issue.record("It was not skipped.")
      return
    }
    #expect(reason.contains("locked"))
  }

  /// - Parameter fault: Nil for a correct engine.
  private func outcome(of id: String, ofBodiesWith fault: ReadsInBodies.Fault?) async throws
    -> ConformanceOutcome
  {
    let server = try WireServer()
    let suite = ConformanceSuite(
      "Bodies", capabilities: ReadsInBodies.promises,
      // Only the faulty engine hangs.
      stallTimeout: fault == .isPatient ? .seconds(6) : .seconds(300), budget: .quick,
      server: ConformanceServer(
        address: server.address, timeLimit: WireEngine.timeLimit,
        maximumConnections: WireEngine.maximumConnections, start: { server.start() }, kill: { server.kill() }
      ) { try await ReadsInBodies($0, port: $1, fault: fault) }
    ) { _ in throw StorageError(.unavailable, "It is reached through the proxy alone.") }
    return try await #require(suite.checks.first { $0.id == id }).outcome()
  }

  @Test("An engine whose bodies wait for a silent server for too long fails")
  func patientBodies() async throws {
    let outcome = try await outcome(of: "network.silent-in-a-body", ofBodiesWith: .isPatient)
    #expect(outcome.failure?.rule == .n1)
  }

  @Test("An engine whose bodies wait for a silent server although they are cancelled fails")
  func uncancellableBodies() async throws {
    let outcome = try await outcome(of: "network.cancelled-in-a-body", ofBodiesWith: .ignoresCancellation)
    #expect(outcome.failure?.rule == .n1)
  }

  @Test("An engine whose bodies continue on another connection, without what they have written, fails")
  func continuedBodies() async throws {
    let outcome = try await outcome(of: "network.cut-in-a-body", ofBodiesWith: .continuesAfterLosses)
    #expect(outcome.failure?.rule == .n2)
  }

  @Test(
    "An engine whose bodies continue on another connection, although what they have read has changed, fails")
  func overtakenBodies() async throws {
    let outcome = try await outcome(of: "network.cut-in-a-body", ofBodiesWith: nil)
    #expect(outcome.failure?.rule == .t1)
  }

  @Test(
    "An engine whose reads in bodies end in time, and when they are cancelled, passes",
    arguments: ["network.silent-in-a-body", "network.cancelled-in-a-body"])
  func bodies(_ id: String) async throws {
    let outcome = try await outcome(of: id, ofBodiesWith: nil)
    #expect(outcome == .passed, "\(outcome)")
  }

  /// Regression: it failed because it had not been refused by then.
  @Test("An engine that does not reach the server in time when it should be refused does not fail")
  func lateRefusal() async throws {
    let attempts = AtomicCounter()
    let refusal = ConformanceServer.Refusal("a wrong password") {
      if attempts.increment() <= 2 {
        throw StorageError(.unavailable, "The server has not answered in time.")
      }
      return try await WireEngine($0, port: $1, password: "let me in", fault: .none)
    }
    try await expectSuccess(of: "network.refused", refusals: [refusal]) {
      try await WireEngine($0, port: $1, fault: .none)
    }
  }

  @Test("An engine without a fault passes", arguments: 0..<NetworkFaultTests.partCount)
  func passes(_ part: Int) async throws {
    let levels = TestRun.isExhaustive ? [ConformanceBudget.Level.quick, .standard] : [.quick]
    let faultless = NetworkFaultCase(rule: .n1, fault: .none, check: "")
    let checks = try levels.flatMap { level in
      try faultless.checks(level).filter { $0.id.hasPrefix("network.") }
        // On a busy machine, calls of very many tasks take longer than the time limit of this engine, which is short.
        + faultless.checks(level, timeLimit: .seconds(120)).filter { $0.rule == .c4 }
    }
    for index in checks.indices where index % Self.partCount == part {
      let outcome = await checks[index].outcome()
      #expect(outcome == .passed, "\(checks[index].id): \(outcome)")
    }
  }

  /// The checks are divided among test cases that run concurrently, since most of their time is spent waiting.
  private static let partCount = 8

  @Test("Every check of networks, or a similar one, has an engine that fails it")
  func everyKind() throws {
    let kinds = try NetworkFaultCase.all[0].checks().map(\.id).filter { $0.hasPrefix("network.") }
    let like = Set(NetworkFaultCase.all.map(\.check).compactMap { $0.split(separator: "-").first })
    #expect(kinds.allSatisfy { like.contains($0.split(separator: "-")[0]) })
  }

  @Test("Without a server, the checks are skipped, with the reason")
  func withoutServer() async throws {
    let suite = ConformanceSuite("", capabilities: .networked) { _ in try ReferenceEngine() }
    let check = try #require(suite.checks.first { $0.id == "network.cut-anywhere" })
    guard case .skipped(let reason) = await check.outcome() else {
      Issue.record("It was not skipped.")
      return
    }
    #expect(reason.contains("ConformanceServer"))
  }
}
