import StockroomCore

/// A sequence as the source of a test, which can be pasted into a file of a test target that uses Swift Testing.
struct ReproductionSource {
  private let failure: FailedSequence
  private let rule: ContractRule
  private let check: String
  private let seed: UInt64
  private let names: ReproductionNames

  init(_ failure: FailedSequence, rule: ContractRule, check: String, seed: UInt64) {
    (self.failure, self.rule, self.check, self.seed) = (failure, rule, check, seed)
    names = ReproductionNames(failure.operations)
  }

  /// The source.
  var source: String {
    let header = """
      import Foundation
      import StockroomCore
      import Testing

      // Found by \(check) with seed \(seed).
      @Test("Calls that break rule \(rule.rawValue) of the contract")
      func reproductionOfSeed\(seed)() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "sequence-\\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
      """
    let footer = """
      }

      /// Opens the engine. Put your own here.
      private func openEngine(_ directory: URL) async throws -> any StorageEngine {
        try MyEngine(directory: directory)
      }
      """
    let usesNoise = failure.operations.flatMap(\.values).contains(where: \.isPrintedAsNoise)
    return ([header] + body.map { "  " + $0 } + [footer] + (usesNoise ? ["", CommandValue.source] : []))
      .joined(separator: "\n")
  }

  /// The statements of the test. If the sequence reopens the engine, the statements that use one instance form a block,
  /// so that this instance is released before the next one is opened.
  private var body: [String] {
    var sessions: [[String]] = [[]]
    for (call, operation) in failure.operations.enumerated() {
      if case .reopen(let closing) = operation {
        if closing { sessions[sessions.count - 1].append("try await engine.close()") }
        sessions.append([])
      } else {
        sessions[sessions.count - 1] += statements(of: operation, call: call)
      }
    }
    if sessions.count == 1 { return names.declarations + open(sessions[0]) }
    return names.declarations + observations.map { "let \($0): Date" }
      + sessions.flatMap { ["do {"] + open($0).map { "  " + $0 } + ["}"] }
  }

  private func open(_ statements: [String]) -> [String] {
    ["\(statements.isEmpty ? "_" : "let engine") = try await openEngine(directory)"] + statements
  }

  /// The names of the results of earlier calls with which the result of the last call is compared.
  private var observations: [String] {
    guard case .time(_, _, let fault) = failure.finding.kind else { return [] }
    if case .isNot = fault { return givenTime == nil ? ["before", "after"] : [] }
    return ["earlier"]
  }

  /// The given time of the entry whose time is wrong, if it was imported.
  private var givenTime: Int? {
    guard case .time(let key, let time, _) = failure.finding.kind, let entry = failure.model[key] else {
      return nil
    }
    return (time == .created ? entry.created : entry.updated).givenTime
  }

  private func statements(of operation: Command, call: Int) -> [String] {
    if call == failure.operations.count - 1 { return lastStatements(operation) }
    let isNew = failure.operations.contains { if case .reopen = $0 { true } else { false } } ? "" : "let "
    if case .time(let key, let time, let fault) = failure.finding.kind {
      switch fault {
      case .isNot(of: call) where givenTime == nil:
        return ["\(isNew)before = Date()"] + statements(of: operation) + ["\(isNew)after = Date()"]
      case .changed(since: call), .wentBack(since: call):
        return ["\(isNew)earlier = \(names.required(time, of: key, by: operation))"]
      default: break
      }
    }
    return statements(of: operation)
  }

  private func statements(of operation: Command) -> [String] {
    let call = names.call(operation)
    if operation.isRefused { return ["await #expect(throws: StorageError.self) { \(call) }"] }
    if case .ask = operation { return ["_ = \(call)"] }
    return [call]
  }

  /// The failing call, with the expected result.
  private func lastStatements(_ operation: Command) -> [String] {
    let call = names.call(operation)
    switch failure.finding.kind {
    case .acceptance:
      return [
        "let error = await #expect(throws: StorageError.self) { \(call) }",
        "#expect(error?.code == .invalidKey)",
      ]
    case .slice: return names.expectationOfIndices(operation)
    case .updatedFirst(let key):
      return [
        "let entry = try #require(\(call).first { $0.key == \(names[key]) })",
        "#expect(entry.createdAt <= entry.updatedAt)",
      ]
    case .time(let key, let time, let fault):
      let name = time.method
      let expectation =
        switch fault {
        case .isNot where givenTime != nil:
          "abs(\(name).timeIntervalSince(\(DatedEntry.literal(givenTime ?? 0)))) <= 0.002"
        case .isNot: "\(name) >= before - 0.002 && \(name) <= after + 0.002"
        case .changed: "\(name) == earlier"
        case .wentBack: "\(name) >= earlier"
        }
      return ["let \(name) = \(names.required(time, of: key, by: operation))", "#expect(\(expectation))"]
    case .body(let index):
      guard case .transaction(let steps, _) = operation else { return [call] }
      return names.expectation(
        of: failure.model.answer(inBodyAt: index, of: steps), at: index, in: steps)
    case .contents, .order, .failure:
      guard case .ask(let question) = operation else { return [call] }
      return names.expectation(of: failure.model.answer(to: question), by: question)
    }
  }
}
