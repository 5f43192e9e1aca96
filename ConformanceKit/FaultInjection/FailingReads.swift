import Foundation
import StockroomCore
import StockroomKitSupport

/// Makes one system call fail while one method reads, for every method and every call that it makes.
struct FailingReads: CheckTask {
  let place: URL
  let hasTransactions: Bool
  let seed: UInt64
  /// The maximum number of faults. Nil for all.
  let limit: Int?

  func check(
    makeEngine: @escaping @Sendable (URL) async throws -> any StorageEngine,
    note: @escaping @Sendable (String) throws -> Void
  ) async throws {
    let interceptor = try SystemCallInterceptor.shared()
    defer { interceptor.end() }
    let answers = try await fill(makeEngine)
    // Nil stands for a transaction that reads.
    var counts: [(part: ReadMethod?, calls: [SystemCall: Int])] = []
    for method in ExpectedAnswers.methods(withTransactions: hasTransactions) {
      try note("\(name(of: method)) with nothing failing")
      counts.append((method, try await calls(of: method, answers, interceptor, makeEngine)))
    }
    let trials = faults(in: counts, seed: seed, limit: limit).flatMap { method, fault in
      // A sector that cannot be read stays unreadable: a retry fails in the same way.
      fault.call.isRead && fault.failure == .inputOutput
        ? [(method, fault), (method, fault.persisting)] : [(method, fault)]
    }
    if trials.isEmpty { throw Skip(reason: "The engine makes no system calls to read.") }
    for (method, fault) in trials {
      try note("\(name(of: method)) while \(fault)")
      try await ask(method, fault, answers, interceptor, makeEngine)
    }
    try note("reading with nothing failing any more")
    let engine = EngineUnderTest(try await makeEngine(place))
    try await answers.verify(engine, first: 0)
    try await engine.close()
    engine.release()
  }

  private func name(of method: ReadMethod?) -> String { method?.call ?? "a transaction that reads" }

  /// Leaves a few entries in the place, and some removed keys.
  private func fill(_ makeEngine: (URL) async throws -> any StorageEngine) async throws -> ExpectedAnswers {
    let engine = EngineUnderTest(try await makeEngine(place))
    var answers = ExpectedAnswers()
    let sizes = [0, 90, 700, 40_000]
    let writes = sizes.enumerated().map {
      StorageOperation.write(noise($0.element, seed: UInt64($0.offset)), key: key("read-\($0.offset)"))
    }
    for operations in [writes, [.write(data("gone"), key: key("removed"))], [.remove(key: key("removed"))]] {
      try await engine.perform(operations)
      answers.apply(operations)
    }
    try await engine.close()
    engine.release()
    return answers
  }

  /// How many calls of each kind the method makes in an engine that has read nothing else.
  private func calls(
    of method: ReadMethod?, _ answers: ExpectedAnswers, _ interceptor: SystemCallInterceptor,
    _ makeEngine: (URL) async throws -> any StorageEngine
  ) async throws -> [SystemCall: Int] {
    let engine = EngineUnderTest(try await makeEngine(place))
    interceptor.begin(at: place, fault: nil, losesUnsynced: false)
    try await answers.ask(method, engine)
    let counts = interceptor.observation.counts
    interceptor.end()
    try await engine.close()
    engine.release()
    return counts
  }

  /// Reads while the call fails, and again without a fault.
  private func ask(
    _ method: ReadMethod?, _ fault: SystemFault, _ answers: ExpectedAnswers,
    _ interceptor: SystemCallInterceptor, _ makeEngine: (URL) async throws -> any StorageEngine
  ) async throws {
    let engine = EngineUnderTest(try await makeEngine(place))
    interceptor.begin(at: place, fault: fault, losesUnsynced: false)
    try await read(method, answers, engine, "when \(fault)", rule: nil)
    interceptor.end()
    // A failed read must neither be cached nor hide entries.
    for next in [method, .readAllEntries] {
      try await read(next, answers, engine, "after \(fault) during \(name(of: method))", rule: .f4)
    }
    do {
      try await engine.close()
    } catch let failure as CallFailure {
      try classify(failure, "after \(fault)")
    }
    engine.release()
    do {
      try await expectNothingOpen(in: place)
    } catch let violation as Violation {
      throw Violation(
        "after \(fault) during \(name(of: method)), \(violation.description)", rule: violation.rule)
    }
  }

  /// Fails if the result is wrong. The read may throw.
  private func read(
    _ method: ReadMethod?, _ answers: ExpectedAnswers, _ engine: EngineUnderTest, _ when: String,
    rule: ContractRule?
  ) async throws {
    do {
      try await answers.ask(method, engine)
    } catch let violation as Violation {
      throw Violation("\(when), \(violation.description)", rule: rule)
    } catch let failure as CallFailure {
      try classify(failure, when)
    }
  }

  private func classify(_ failure: CallFailure, _ when: String) throws {
    if let violation = mistake(in: failure.error, of: failure.call) {
      throw Violation("\(when), \(violation.description)", rule: .f4)
    }
  }
}
