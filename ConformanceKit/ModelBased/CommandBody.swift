#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A step of the body of a transaction.
enum BodyStep: Sendable, Hashable {
  case change(CommandStep)
  /// A read that transactions have as well: of one key or of many, keyExists, keyCount, allKeys or a scan.
  case ask(CommandQuery)

  var change: CommandStep? { if case .change(let step) = self { step } else { nil } }

  var question: CommandQuery? { if case .ask(let question) = self { question } else { nil } }

  var keys: [CacheKey] {
    switch self {
    case .change(let step): [step.key].compactMap { $0 }
    case .ask(let question): question.keys
    }
  }

  func renaming(_ rename: (CacheKey) -> CacheKey) -> BodyStep {
    switch self {
    case .change(let step): .change(step.renaming(rename))
    case .ask(let question): .ask(question.renaming(rename))
    }
  }
}

/// The error that the body of a generated transaction throws at its end.
struct BodyThrew: Error {
  let answers: [CommandAnswer]
}

extension [BodyStep] {
  /// Runs the body. Returns the results of its reads.
  func run(in transaction: any StorageTransaction) throws -> [CommandAnswer] {
    var answers: [CommandAnswer] = []
    for step in self {
      switch step {
      case .change(.writeEntry(let dated)): try transaction.writeEntry(dated.storageEntry)
      case .change(let change): try transaction.apply([change.operation].compactMap { $0 })
      case .ask(let question): answers.append(try question.ask(transaction))
      }
    }
    return answers
  }
}

extension CommandQuery {
  fileprivate func ask(_ transaction: any StorageTransaction) throws -> CommandAnswer {
    switch self {
    case .read(let key): .value(try transaction.read(key: key))
    case .readMany(let keys): .values(try transaction.read(keys: keys))
    case .keyExists(let key): .exists(try transaction.keyExists(key))
    case .keyCount: .count(try transaction.keyCount())
    case .allKeys: .keys(try transaction.allKeys())
    case .scan(let range, let limit): .pairs(try transaction.scan(range, limit: limit))
    case .readDataAndKeys, .readEntries, .readAllData, .readAllDataAndKeys, .readAllEntries, .keysExist,
      .createdAt, .updatedAt:
      // No generated body makes this call.
      .nothing
    }
  }
}

extension ReferenceModel {
  /// Compares the reads of a transaction's body with the expected results, and records its changes.
  mutating func check(
    _ steps: [BodyStep], throwing isThrowing: Bool, _ answer: CommandAnswer, at moment: TimeWindow
  ) -> ModelMismatch? {
    guard case .body(let answers, let hasThrown) = answer, hasThrown == isThrowing else {
      return ModelMismatch(
        kind: .failure, rule: .t3, text: "withTransaction(_:) returned, although its body had thrown")
    }
    var inner = self
    var rest = answers[...]
    for (index, step) in steps.enumerated() {
      switch step {
      case .change(let change): inner.apply([change], at: moment)
      case .ask(let question):
        guard let answer = rest.popFirst() else { continue }
        let hasChanged = steps.prefix(index).contains { $0.change != nil }
        if let finding = inner.check(answer, inBodyAt: index, of: question, hasChanged ? .t2 : .t1) {
          return finding
        }
      }
    }
    if !isThrowing { self = inner }
    return nil
  }

  private func check(
    _ answer: CommandAnswer, inBodyAt index: Int, of question: CommandQuery, _ rule: ContractRule
  ) -> ModelMismatch? {
    if let name = answer.slice {
      return ModelMismatch(
        kind: .body(at: index), rule: .v3,
        text: "in a transaction, \(question.phrase) returned \(name) whose first index is not 0")
    }
    return difference(answer.normalized(for: question), by: question).map {
      ModelMismatch(kind: .body(at: index), rule: rule, text: "in a transaction, \($0.text)")
    }
  }

  /// The expected result of the read at this index in the body of a transaction that begins now.
  func answer(inBodyAt index: Int, of steps: [BodyStep]) -> CommandAnswer {
    guard case .ask(let question) = steps[index] else { return .nothing }
    var inner = self
    let now = Date()
    inner.apply(steps.prefix(index).compactMap(\.change), at: TimeWindow(call: 0, before: now, after: now))
    return inner.answer(to: question)
  }
}
