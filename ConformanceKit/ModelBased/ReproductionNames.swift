#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The calls of a sequence as source, with a name for each key.
struct ReproductionNames {
  /// The declarations of the names.
  let declarations: [String]
  private let names: [CacheKey: String]
  /// The written values, with the expressions for them.
  private let literals: [Data: String]

  init(_ operations: [Command]) {
    var names: [CacheKey: String] = [:]
    var declarations: [String] = []
    for key in operations.flatMap(\.keys) where names[key] == nil {
      let letters = key.value.utf8
      let isName =
        letters.count == 1 && letters.allSatisfy { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) }
      let name = isName ? key.value : "key\(names.count + 1)"
      names[key] = name
      let argument = key.rawValue == key.value ? "verbatim: \(key.value.literal)" : key.rawValue.literal
      declarations.append("let \(name) = CacheKey(\(argument))")
    }
    (self.names, self.declarations) = (names, declarations)
    let values = operations.flatMap(\.values)
    literals = Dictionary(values.map { ($0.data, $0.literal) }) { literal, _ in literal }
  }

  subscript(_ key: CacheKey) -> String { names[key] ?? "CacheKey(verbatim: \(key.value.literal))" }

  private func literal(_ data: Data) -> String {
    literals[data] ?? "Data([\(data.map { String($0) }.joined(separator: ", "))])"
  }

  private func list(_ keys: [CacheKey]) -> String { "[\(keys.map { self[$0] }.joined(separator: ", "))]" }

  /// The call as an expression.
  func call(_ operation: Command) -> String {
    switch operation {
    case .write(let entry): return "try await engine.write(\(entry.value.literal), key: \(self[entry.key]))"
    case .writeMany(let entries):
      let list = entries.map { "(key: \(self[$0.key]), data: \($0.value.literal))" }.joined(separator: ", ")
      return "try await engine.write([\(list)])"
    case .writeEntries(let entries):
      return "try await engine.writeEntries([\(entries.map(source).joined(separator: ", "))])"
    case .remove(let key): return "try await engine.remove(key: \(self[key]))"
    case .removeMany(let keys): return "try await engine.remove(keys: \(list(keys)))"
    case .removeAll: return "try await engine.removeAllData()"
    case .apply(let steps):
      return "try await engine.apply([\(steps.map(source).joined(separator: ", "))])"
    case .transaction(let steps, let isThrowing):
      let body = steps.map { step in
        switch step {
        case .change(let change): call(change)
        case .ask(let question): "_ = try transaction.\(method(question))"
        }
      }
      return transaction(body, isThrowing: isThrowing)
    case .ask(let question): return "try await engine.\(method(question))"
    case .reopen: return "try await engine.close()"
    case .wait: return "try await Task.sleep(for: .milliseconds(6))"
    }
  }

  /// The change as a statement in the body of a transaction.
  private func call(_ change: CommandStep) -> String {
    switch change {
    case .removeAll: "try transaction.removeAll()"
    case .writeEntry(let dated): "try transaction.writeEntry(\(source(dated)))"
    case .write, .remove: "try transaction\(source(change))"
    }
  }

  /// A transaction with these statements. If its body throws, it includes the expectation of that error.
  private func transaction(_ statements: [String], isThrowing: Bool) -> String {
    let body = (statements + (isThrowing ? ["throw CancellationError()"] : [])).joined(separator: "; ")
    let name = body.contains("transaction") ? "transaction" : "_"
    let call = "try await engine.withTransaction { \(name) in \(body) }"
    return isThrowing ? "await #expect(throws: CancellationError.self) { \(call) }" : call
  }

  /// A transaction that returns the result of one read, and the expectation of this result. The expectation is outside
  /// of the body, because inside it Swift Testing does not know the current test.
  func expectation(of answer: CommandAnswer, at index: Int, in steps: [BodyStep]) -> [String] {
    guard case .ask(let question) = steps[index] else { return [] }
    let changes = steps.prefix(index).compactMap(\.change).map { call($0) }
    let body = (changes + ["return try transaction.\(method(question))"]).joined(separator: "; ")
    let expectations = expectation(of: answer, by: question).map {
      $0.replacing(call(.ask(question)), with: "answer")
    }
    return ["let answer = try await engine.withTransaction { transaction in \(body) }"] + expectations
  }

  private func source(_ step: CommandStep) -> String {
    switch step {
    case .write(let entry): ".write(\(entry.value.literal), key: \(self[entry.key]))"
    case .writeEntry(let dated): source(dated)
    case .remove(let key): ".remove(key: \(self[key]))"
    case .removeAll: ".removeAll"
    }
  }

  private func source(_ dated: DatedEntry) -> String {
    "StorageEntry(key: \(self[dated.entry.key]), data: \(dated.entry.value.literal), createdAt: "
      + "\(DatedEntry.literal(dated.createdAt)), updatedAt: \(DatedEntry.literal(dated.updatedAt)))"
  }

  private func method(_ question: CommandQuery) -> String {
    switch question {
    case .read(let key): "read(key: \(self[key]))"
    case .readMany(let keys): "read(keys: \(list(keys)))"
    case .readDataAndKeys(let keys): "readDataAndKeys(keys: \(list(keys)))"
    case .readEntries(let keys): "readEntries(keys: \(list(keys)))"
    case .keyExists(let key): "keyExists(\(self[key]))"
    case .keysExist(let keys): "keysExist(\(list(keys)))"
    case .createdAt(let key): "createdAt(key: \(self[key]))"
    case .updatedAt(let key): "updatedAt(key: \(self[key]))"
    case .scan(let range, let limit): "scan(\(source(range)), limit: \(limit.literal))"
    case .readAllData, .readAllDataAndKeys, .readAllEntries, .keyCount, .allKeys: question.name
    }
  }

  private func source(_ range: KeyRange) -> String {
    func optional(_ key: CacheKey?) -> String { key.map { self[$0] } ?? "nil" }
    let bounds = "KeyRange(after: \(optional(range.after)), upTo: \(optional(range.upTo)))"
    guard let prefix = range.prefix else { return range == .all ? ".all" : bounds }
    if range == .prefix(prefix) { return ".prefix(\(prefix.literal))" }
    return "{ var range = \(bounds); range.prefix = \(prefix.literal); return range }()"
  }

  /// The time of an entry, from the result of a call that returns it.
  func required(_ time: CommandTimestamp, of key: CacheKey, by operation: Command) -> String {
    var path = ""
    if case .ask(let question) = operation, [.readEntries, .readAllEntries].contains(question.method) {
      path = ".first { $0.key == \(self[key]) }?.\(time.method)"
    }
    return "try #require(\(call(operation))\(path))"
  }

  /// Statements that make the read and expect this result.
  func expectation(of answer: CommandAnswer, by question: CommandQuery) -> [String] {
    let call = call(.ask(question))
    switch answer {
    case .value(let data):
      return ["#expect(\(call) == \(data.map(literal) ?? "nil"))"]
    case .values(let values):
      let sorted = question == .readAllData ? ".sorted { $0.lexicographicallyPrecedes($1) }" : ""
      return ["#expect(\(call)\(sorted) == [\(values.map(literal).joined(separator: ", "))])"]
    case .pairs(let pairs):
      let sorted = question == .readAllDataAndKeys ? ".sorted { $0.key < $1.key }" : ""
      return [
        "let found = \(call)\(sorted)",
        "#expect(found.map(\\.key) == \(list(pairs.map(\.key))))",
        "#expect(found.map(\\.data) == [\(pairs.map { literal($0.data) }.joined(separator: ", "))])",
      ]
    case .keys(let keys):
      return ["#expect(\(call)\(question == .allKeys ? ".sorted()" : "") == \(list(keys)))"]
    case .exists(let exists): return ["#expect(\(call) == \(exists))"]
    case .count(let count): return ["#expect(\(call) == \(count))"]
    case .date(let date): return ["#expect(\(call) \(date == nil ? "==" : "!=") nil)"]
    case .nothing, .entries, .body, .threw: return [call]
    }
  }

  /// Statements that make the read and expect values that start at index 0.
  func expectationOfIndices(_ operation: Command) -> [String] {
    let call = call(operation)
    switch operation {
    case .ask(.read): return ["#expect((\(call))?.startIndex == 0)"]
    case .ask(.readMany), .ask(.readAllData): return ["#expect(\(call).allSatisfy { $0.startIndex == 0 })"]
    default: return ["#expect(\(call).allSatisfy { $0.data.startIndex == 0 })"]
    }
  }
}
