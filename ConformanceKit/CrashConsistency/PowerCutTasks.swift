#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

extension Violation {
  /// The violation of an engine after a power cut: of rule W6 unless the error names another.
  init(_ error: any Error, while what: String = "") {
    self.init(what + String(describing: error), rule: (error as? Violation)?.rule ?? .w6)
  }
}

/// Performs the steps of a scenario, in a worker whose system calls are being recorded.
struct TakeStepsTask: WorkerTask {
  struct Message: Codable, Sendable {
    /// The number of the task, if one run follows another.
    let run: Int
    /// The step that has been acknowledged. Opening counts as the step before the first.
    let step: Int
    /// Which of the candidates the contents matched after opening.
    var candidate: Int?
    var violation: Violation?
  }

  let run: Int
  let directory: URL
  let scenario: PowerCutScenario
  let steps: ClosedRange<Int>
  /// The possible contents at the beginning. If empty, nothing is checked.
  var candidates: [PowerCutCandidate] = []
  let capabilities: UInt
  let since: Date

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Message) throws -> Void
  ) async throws {
    var engine = EngineUnderTest(try await makeEngine(directory))
    var opened = Message(run: run, step: steps.lowerBound - 1)
    if !candidates.isEmpty {
      do {
        opened.candidate = try await firstMatch(
          of: candidates, in: engine, scenario, EngineCapabilities(rawValue: capabilities), since: since
        ).index
      } catch {
        opened.violation = Violation(error)
      }
    }
    try send(opened)
    for step in steps {
      try await scenario.perform(step, on: engine)
      try send(Message(run: run, step: step))
      guard scenario.reopens(after: step) else { continue }
      try await engine.close()
      engine.release()
      engine = EngineUnderTest(try await makeEngine(directory))
    }
    try await engine.close()
    engine.release()
  }
}

/// Opens an engine on a state after a power cut and checks everything.
struct InspectTask: WorkerTask {
  enum Message: Codable, Sendable {
    /// Reports progress, since each call of an engine may take long.
    case progress
    case broken(Violation)
  }

  let directory: URL
  let scenario: PowerCutScenario
  /// The possible contents.
  let candidates: [PowerCutCandidate]
  let capabilities: UInt
  let since: Date

  func run(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    send: @escaping @Sendable (Message) throws -> Void
  ) async throws {
    let note: @Sendable () throws -> Void = { try send(.progress) }
    var doing = "opening the engine"
    do {
      var engine = EngineUnderTest(try await makeEngine(directory))
      doing = ""
      try note()
      var (_, expected) = try await firstMatch(
        of: candidates, in: engine, scenario, EngineCapabilities(rawValue: capabilities), since: since,
        noting: note)
      doing = "writing afterwards"
      try await scenario.perform(PowerCutScenario.afterwards, on: engine)
      expected.apply(scenario.operations(of: PowerCutScenario.afterwards))
      doing = "closing afterwards"
      try await engine.close()
      engine.release()
      doing = "reopening the engine"
      engine = EngineUnderTest(try await makeEngine(directory))
      doing = "after writing and reopening"
      try await expected.verify(engine, noting: note)
      try await engine.close()
      engine.release()
    } catch let error as Violation {
      try send(.broken(Violation(error, while: doing.isEmpty ? "" : "\(doing), ")))
    } catch {
      let failure = error as? CallFailure
      try send(
        .broken(
          Violation(error, while: doing.isEmpty ? "" : "\(doing)\(failure == nil ? " threw " : ": ")")))
    }
  }
}

/// Which of the candidates matches the contents, and the contents expected from now on.
///
/// - Parameter note: Called after each result that may take an engine long.
/// - Throws: The violation of the first candidate, if none matches.
private func firstMatch(
  of candidates: [PowerCutCandidate], in engine: EngineUnderTest, _ scenario: PowerCutScenario,
  _ capabilities: EngineCapabilities, since beginning: Date, noting note: @Sendable () throws -> Void = {}
) async throws -> (index: Int, expected: ExpectedContents) {
  let found = try await ExpectedContents.agreedEntries(of: engine, noting: note)
  var reason: Violation?
  for (index, candidate) in candidates.enumerated() {
    do {
      var expected = Expectations.shared.expectation(of: candidate, scenario, capabilities, beginning)
      let underWay = candidate.underWay.map { scenario.operations(of: $0) } ?? []
      try expected.check(found, underWay: underWay)
      return (index, expected)
    } catch let error as Violation {
      reason = reason ?? error
    }
  }
  guard let reason else { throw Violation("nothing was expected") }
  if capabilities.contains(.durableWrites) { throw reason }
  throw Violation(
    "its contents were those after none of the batches; compared with the last one, \(reason)",
    rule: reason.rule)
}

/// Caches the expected contents of each candidate, since many states have the same candidates.
private final class Expectations: Sendable {
  static let shared = Expectations()

  private let known = MutexProtected<[PowerCutCandidate: ExpectedContents]>([:])

  func expectation(
    of candidate: PowerCutCandidate, _ scenario: PowerCutScenario, _ capabilities: EngineCapabilities,
    _ beginning: Date
  ) -> ExpectedContents {
    var key = candidate
    key.underWay = nil
    if let known = known.withLock({ $0[key] }) { return known }
    let made = key.expectation(scenario, in: capabilities, since: beginning)
    known.withLock { $0[key] = made }
    return made
  }
}
