#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The mismatch between the last call of a sequence and the contract.
struct ModelMismatch: Sendable {
  enum Kind: Sendable {
    /// The result has other entries or other values.
    case contents
    /// `readAllEntries()` has another order.
    case order
    /// A value does not start at index 0.
    case slice
    case time(of: CacheKey, CommandTimestamp, TimestampMismatch)
    /// `readAllEntries()` has an entry whose createdAt is after its updatedAt.
    case updatedFirst(CacheKey)
    /// The call should have thrown `invalidKey`.
    case acceptance
    /// The call should not have thrown, or should have thrown.
    case failure
    /// The result of the read at this index in the body of a transaction is wrong.
    case body(at: Int)
  }

  let kind: Kind
  /// The rule that is broken, as far as this result alone shows.
  let rule: ContractRule
  /// What happened, as a clause.
  let text: String
  /// The deviation of a wrong time in seconds; negative if it is too early.
  var deviation: TimeInterval?
}

/// What is wrong with a time.
enum TimestampMismatch: Sendable {
  /// It is not the time of that call.
  case isNot(of: Int)
  /// It differs from the time that the result of that call had.
  case changed(since: Int)
  /// It is before the time that the result of that call had.
  case wentBack(since: Int)
}

extension ReferenceModel {
  /// Compares the result of a call with the expected one, and records the changes of the call.
  ///
  /// - Parameter ordersBatches: Whether the engine has to know the order of writes within one tick of the clock: not if
  ///   it implements a batch as single writes.
  mutating func check(
    _ operation: Command, _ answer: CommandAnswer, at moment: TimeWindow, ordersBatches: Bool
  ) -> ModelMismatch? {
    if operation.isRefused { return checkRefusal(of: operation, answer) }
    if case .threw(let failure) = answer {
      return ModelMismatch(
        kind: .failure, rule: operation.rule(brokenBy: failure), text: failure.description)
    }
    if case .transaction(let steps, let isThrowing) = operation {
      return check(steps, throwing: isThrowing, answer, at: moment)
    }
    if let steps = operation.steps { apply(steps, at: moment) }
    guard case .ask(let question) = operation else { return nil }
    if let name = answer.slice {
      return ModelMismatch(
        kind: .slice, rule: .v3, text: "\(question.phrase) returned \(name) whose first index is not 0")
    }
    switch (question, answer) {
    case (.createdAt(let key), .date(let date)):
      return check(date, .created, of: key, by: question, call: moment.call)
    case (.updatedAt(let key), .date(let date)):
      return check(date, .updated, of: key, by: question, call: moment.call)
    case (_, .entries(let entries)):
      return check(entries, by: question, call: moment.call, ordersBatches: ordersBatches)
    default:
      return difference(answer.normalized(for: question), by: question)
    }
  }

  private func checkRefusal(of operation: Command, _ answer: CommandAnswer) -> ModelMismatch? {
    var actual = "returned"
    if case .threw(let failure) = answer {
      if (failure.error as? StorageError)?.code == .invalidKey { return nil }
      actual = "threw \(shortened(String(describing: failure.error)))"
    }
    if case .transaction = operation {
      return ModelMismatch(
        kind: .acceptance, rule: .t4,
        text: "\(operation.phrase), one of which has an invalid key, \(actual) instead of throwing invalidKey"
      )
    }
    let isBatch = operation.keys.count > 1 && operation.steps != nil
    return ModelMismatch(
      kind: .acceptance, rule: isBatch ? .w4 : .k1,
      text: "\(operation.phrase), which has an invalid key, \(actual) instead of throwing invalidKey")
  }

  func difference(_ answer: CommandAnswer, by question: CommandQuery) -> ModelMismatch? {
    func finding(_ what: String, _ found: Any, _ expected: Any) -> ModelMismatch {
      ModelMismatch(
        kind: .contents, rule: question.rule,
        text: "\(what)\(question.phrase) returned \(describe(found)) instead of \(describe(expected))")
    }
    let expected = self.answer(to: question)
    switch (
      answer,
      question.method == .readEntries || question.method == .readAllEntries ? expected.inByteOrder : expected
    ) {
    case (.value(let found), .value(let expected)):
      return found == expected ? nil : finding("", found as Any, expected as Any)
    case (.values(let found), .values(let expected)):
      return found == expected ? nil : finding("", found, expected)
    case (.keys(let found), .keys(let expected)):
      return found == expected ? nil : finding("", list(found), list(expected))
    case (.exists(let found), .exists(let expected)):
      return found == expected ? nil : finding("", found, expected)
    case (.count(let found), .count(let expected)):
      return found == expected ? nil : finding("", found, expected)
    case (.pairs(let found), .pairs(let expected)):
      if found.map(\.key) != expected.map(\.key) {
        return finding("of the entries, ", list(found.map(\.key)), list(expected.map(\.key)))
      }
      let wrong = zip(found, expected).first { $0.data != $1.data }
      return wrong.map { finding("as the value of \($0.key.value.literal), ", $0.data, $1.data) }
    default:
      return nil
    }
  }
}

// MARK: - Times and order

extension ReferenceModel {
  private mutating func check(
    _ date: Date?, _ time: CommandTimestamp, of key: CacheKey, by question: CommandQuery, call: Int
  ) -> ModelMismatch? {
    let what = "\(time.method) of \(key.value.literal), by \(question.name),"
    guard let entry = self[key], let date else {
      if (self[key] == nil) == (date == nil) { return nil }
      return ModelMismatch(
        kind: .contents, rule: question.rule,
        text: "\(what) was \(describe(date as Any)), although the key was "
          + "\(date == nil ? "present" : "absent")"
      )
    }
    func finding(_ fault: TimestampMismatch, from other: Date, _ actual: (String) -> String)
      -> ModelMismatch
    {
      let seconds = date.timeIntervalSince(other)
      let difference = "\(abs(seconds)) s \(seconds < 0 ? "before" : "after")"
      return ModelMismatch(
        kind: .time(of: key, time, fault), rule: .w2, text: "\(what) was \(actual(difference))",
        deviation: seconds)
    }
    let (moment, seen) =
      time == .created ? (entry.created, entry.seenCreated) : (entry.updated, entry.seenUpdated)
    if let seen, abs(seen.date.timeIntervalSince(date)) > precisionOfTime {
      return finding(.changed(since: seen.call), from: seen.date) {
        "\($0) what it had been, although nothing had changed it"
      }
    }
    if time == .updated, let before = entry.seenUpdatedBefore, date < before.date - precisionOfTime {
      return finding(.wentBack(since: before.call), from: before.date) { "\($0) what it had been" }
    }
    // The tolerance of rule W2 in both directions.
    let window = moment.window
    for (bound, isBeyond) in [
      (window.lowerBound, date < window.lowerBound - ClockTolerance.seconds),
      (window.upperBound, date > window.upperBound + ClockTolerance.seconds),
    ] where isBeyond {
      return finding(.isNot(of: moment.call), from: bound) { "\($0) it should have been" }
    }
    see(date, time, of: key, call: call)
    return nil
  }

  private mutating func check(
    _ found: [StorageEntry], by question: CommandQuery, call: Int, ordersBatches: Bool
  ) -> ModelMismatch? {
    // Missing entries take precedence over a wrong order, for which an engine may depend on the clock.
    let sorted = CommandAnswer.pairs(found.map { ($0.key, $0.data) })
    if let difference = difference(sorted.inByteOrder, by: question) { return difference }
    // The default readEntries(keys:) only sorts by times.
    let ordersBatches = ordersBatches && (keepsTimes || question.method != .readEntries)
    for (earlier, later) in zip(found, found.dropFirst())
    where !isOrder(earlier, later, ordersBatches: ordersBatches) {
      return ModelMismatch(
        kind: .order, rule: .r6,
        text:
          "\(question.name) returned \(earlier.key.value.literal) before \(later.key.value.literal), which "
          + "was written first: the keys were \(list(found.map(\.key))) instead of "
          + "\(list(keysInOrder.filter(Set(found.map(\.key)).contains)))"
      )
    }
    for entry in found {
      for (date, time) in [(entry.createdAt, CommandTimestamp.created), (entry.updatedAt, .updated)] {
        if let finding = check(date, time, of: entry.key, by: question, call: call) { return finding }
      }
      if entry.createdAt > entry.updatedAt {
        return ModelMismatch(
          kind: .updatedFirst(entry.key), rule: .w2,
          text: "\(question.name) returned a createdAt after updatedAt for \(entry.key.value.literal)")
      }
    }
    return nil
  }

  /// Whether the first entry may come right before the second one.
  ///
  /// An engine that implements a batch as single writes only has the clock to order them. It cannot order them if the
  /// clock has not advanced, and orders them wrongly if it was set back.
  private func isOrder(_ one: StorageEntry, _ next: StorageEntry, ordersBatches: Bool) -> Bool {
    guard let first = self[one.key], let second = self[next.key], first.sequence > second.sequence else {
      return true
    }
    if ordersBatches { return false }
    if one.createdAt == next.createdAt { return true }
    return one.createdAt < next.createdAt
      && first.created.window.lowerBound < second.created.window.upperBound
  }
}

// MARK: - Descriptions

/// A list of keys for sentences.
private func list(_ keys: [CacheKey]) -> String {
  let shown = keys.prefix(6).map(\.value.literal).joined(separator: ", ")
  return keys.count > 6 ? "[\(shown), … \(keys.count) in all]" : "[\(shown)]"
}

extension CommandAnswer {
  /// The value that does not start at index 0.
  var slice: String? {
    switch self {
    case .value(let data): data.flatMap { $0.startIndex == 0 ? nil : "a value" }
    case .values(let values): values.contains { $0.startIndex != 0 } ? "a value" : nil
    case .pairs(let pairs):
      pairs.first { $0.data.startIndex != 0 }.map { "a value of \($0.key.value.literal)" }
    case .entries(let entries):
      entries.first { $0.data.startIndex != 0 }.map { "a value of \($0.key.value.literal)" }
    default: nil
    }
  }

  /// The result with its pairs in the byte order of keys.
  fileprivate var inByteOrder: CommandAnswer {
    if case .pairs(let pairs) = self { .pairs(pairs.sorted { $0.key < $1.key }) } else { self }
  }

  /// The result with its list in byte order, if the order is unspecified.
  func normalized(for question: CommandQuery) -> CommandAnswer {
    switch (question, self) {
    case (.readAllData, .values(let values)): .values(values.sorted { $0.lexicographicallyPrecedes($1) })
    case (.readAllDataAndKeys, .pairs): inByteOrder
    case (.allKeys, .keys(let keys)): .keys(keys.sorted())
    default: self
    }
  }
}

extension CommandQuery {
  /// The call, for sentences.
  var phrase: String {
    switch self {
    case .read(let key), .keyExists(let key), .createdAt(let key), .updatedAt(let key):
      "\(name) of \(key.value.literal)"
    case .readMany(let keys), .readDataAndKeys(let keys), .readEntries(let keys), .keysExist(let keys):
      "\(name) of \(list(keys))"
    default: name
    }
  }
}

extension Command {
  /// The call, for sentences.
  var phrase: String {
    switch self {
    case .write(let entry): "write(_:key:) of \(entry.key.value.literal)"
    case .writeMany(let entries): "write(_:) of \(entries.count)"
    case .writeEntries(let entries): "writeEntries(_:) of \(entries.count)"
    case .remove(let key): "remove(key:) of \(key.value.literal)"
    case .removeMany(let keys): "remove(keys:) of \(list(keys))"
    case .removeAll: "removeAllData()"
    case .apply(let steps): "apply(_:) of \(steps.count)"
    case .transaction(let steps, _): "withTransaction(_:) of \(steps.count) steps"
    case .ask(let question): question.phrase
    case .reopen(let closing): closing ? "close() and reopening" : "reopening without close()"
    case .wait: "waiting"
    }
  }

  /// The rule that is broken if the call throws although it should not.
  fileprivate func rule(brokenBy failure: CallFailure) -> ContractRule {
    switch self {
    case .transaction(_, let isThrowing): isThrowing ? .t3 : .t1
    case _ where steps?.isEmpty == true: .w3
    case .write: .w1
    case .writeMany, .writeEntries: .w3
    case .remove, .removeMany: .d1
    case .removeAll: .d2
    case .apply: .w5
    case .ask(.read), .ask(.keyExists): .r1
    case .ask(let question): question.rule
    case .reopen where failure.call == "close()": .o3
    case .reopen: (failure.error as? StorageError)?.code == .locked ? .o4 : .w6
    case .wait: .w2
    }
  }
}
