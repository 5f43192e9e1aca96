#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A violation of a check's expectation: what happened instead, as a clause.
struct Violation: Error, Codable, CustomStringConvertible {
  let description: String
  /// The broken rule, if it is not the check's: a search may find violations of other rules.
  let rule: ContractRule?
  /// Lines that show the failure, such as a sequence of calls in Swift or a timeline. Reports keep its line
  /// breaks.
  let evidence: String?
  /// The seed with which the check reproduces this violation, if it is not the seed of the budget.
  let seed: UInt64?

  init(_ description: String, rule: ContractRule? = nil, evidence: String? = nil, seed: UInt64? = nil) {
    self.description = description
    self.rule = rule
    self.evidence = evidence
    self.seed = seed
  }
}

/// The check cannot run here.
struct Skip: Error {
  let reason: String

  static let noFiles = Skip(reason: "The engine has no files in the directory on which it was opened.")
}

/// Fails unless the condition holds.
func expect(_ condition: Bool, _ actual: @autoclosure () -> String) throws {
  if !condition { throw Violation(actual()) }
}

/// Fails unless the value equals the expected one.
func expect<Value: Equatable>(
  _ value: Value, is expected: Value, _ what: @autoclosure () -> String
) throws {
  guard value != expected else { return }
  throw Violation("\(what()) was \(describe(value)) instead of \(describe(expected))")
}

/// Fails unless the values equal the expected ones, in that order.
func expect<Element: Equatable>(
  _ values: [Element], is expected: [Element], _ what: @autoclosure () -> String
) throws {
  guard values != expected else { return }
  // Only the beginning of long lists is shown.
  let place = zip(values, expected).enumerated().first { $1.0 != $1.1 }?.offset ?? 0
  let detail =
    place < 6
    ? ""
    : ", which differ from place \(place) on: \(describe(values[place])) instead of "
      + describe(expected[place])
  throw Violation("\(what()) was \(describe(values)) instead of \(describe(expected))\(detail)")
}

/// Fails unless the keys equal the expected ones, each once, in any order.
func expect(_ keys: [CacheKey], areInAnyOrder expected: [CacheKey], _ what: String) throws {
  // Sorting millions of keys would take long.
  try expect(keys.count, is: expected.count, "the number of keys that \(what) lists")
  try expect(keys.inByteOrder(), is: expected.inByteOrder(), "\(what), sorted,")
}

/// Fails unless the entries are those expected, in that order.
func expect(
  _ entries: [(key: CacheKey, data: Data)], are expected: [(key: CacheKey, data: Data)],
  _ what: @autoclosure () -> String
) throws {
  try expect(entries.map { $0.key }, is: expected.map { $0.key }, "the keys of \(what())")
  for (entry, expected) in zip(entries, expected) where entry.data != expected.data {
    try expect(entry.data, is: expected.data, "the value of \(entry.key) in \(what())")
  }
}

/// The entries by key. Fails if a key is listed more than once.
func contentsByKey(_ entries: [(key: CacheKey, data: Data)]) throws -> [CacheKey: Data] {
  try Dictionary(entries.map { ($0.key, $0.data) }) { first, second in
    throw Violation(
      "readAllDataAndKeys() listed a key twice, with \(describe(first)) and with \(describe(second))",
      rule: .r3)
  }
}

/// Fails unless the call throws a `StorageError` with one of the codes. Returns the error.
@discardableResult
func expectError<Result>(
  _ codes: StorageError.Code..., from call: @autoclosure () -> String, _ body: () async throws -> Result
) async throws -> StorageError {
  let wanted = codes.map(\.name).joined(separator: " or ")
  do {
    let result = try await body()
    throw Violation(
      Result.self == Void.self
        ? "\(call()) returned instead of throwing \(wanted)"
        : "\(call()) returned \(describe(result)) instead of throwing \(wanted)")
  } catch let failure as CallFailure {
    if let error = failure.error as? StorageError, codes.contains(error.code) { return error }
    throw Violation("\(call()) threw \(shortened(String(describing: failure.error))) instead of \(wanted)")
  }
}

/// A short description of a value for sentences. The bytes of data are shown in hexadecimal.
func describe(_ value: Any) -> String {
  switch value {
  case let data as Data: describe(data)
  case let list as any ListValue: list.shown
  case let optional as any OptionalValue:
    if let wrapped = optional.wrappedValue { describe(wrapped) } else { "nil" }
  case let date as Date: "\(date.timeIntervalSince1970) s"
  default: shortened(String(describing: value))
  }
}

private func describe(_ data: Data) -> String {
  let shown = data.prefix(16).map { byte in
    let digits = String(byte, radix: 16)
    return digits.count == 1 ? "0" + digits : digits
  }
  let bytes = data.count == 1 ? "1 byte" : "\(data.count) bytes"
  return shown.isEmpty ? bytes : "\(bytes) (\(shown.joined())\(data.count > 16 ? "…" : ""))"
}

private protocol ListValue {
  var shown: String { get }
}

extension Array: ListValue {
  /// The first few elements, because an engine may return millions.
  fileprivate var shown: String {
    let shown = prefix(6).map { describe($0) }.joined(separator: ", ")
    return count > 6 ? "[\(shown), … \(count) in all]" : "[\(shown)]"
  }
}

/// The text, shortened to fit into a paragraph, except that the first path in it remains complete: without it, an
/// error does not say where something failed.
func shortened(_ text: String) -> String {
  guard text.count > 1_800 else { return text }
  let (head, tail) = (text.prefix(1_300), text.suffix(300))
  guard let start = beginningOfPath(in: text), start < tail.startIndex else { return "\(head)…\(tail)" }
  // The greatest length of a path. Where it ends is unknown, since names may contain any character but a slash.
  let path = text[start...].prefix(4_096)
  let shown = start > head.endIndex ? "\(head)…" : "\(text[..<start])"
  return path.endIndex < tail.startIndex ? "\(shown)\(path)…\(tail)" : "\(shown)\(text[start...])"
}

/// The first slash that does not separate two words.
private func beginningOfPath(in text: String) -> String.Index? {
  var previous: Character = " "
  return text.indices.first { index in
    defer { previous = text[index] }
    return text[index] == "/" && !previous.isLetter && !previous.isNumber
  }
}

private protocol OptionalValue {
  var wrappedValue: Any? { get }
}

extension Optional: OptionalValue {
  fileprivate var wrappedValue: Any? { self }
}

/// Fails unless the engine returns these values, and nil for the keys that are absent.
///
/// Uses only read(key:), so that a fault of another method counts against the rule of that method. For a slow engine,
/// it reads a sample of many keys, as many as ``timeout`` allows.
func expectStored(
  _ entries: [(key: CacheKey, data: Data)], absent: [CacheKey] = [], in engine: EngineUnderTest
) async throws {
  try await forEach(entries) { entry in
    let value = try await engine.read(key: entry.key)
    try expect(value, is: entry.data, "read(key:) of \(entry.key)")
  }
  try await forEach(absent) { key in
    try expect(try await engine.read(key: key), is: nil, "read(key:) of \(key), which should be absent,")
  }
}

/// The time limit for reading one key after the other from a slow engine.
private let timeout = Duration.seconds(3)

/// Calls the body for all elements, or for as many as the time limit allows, at least 500, spread evenly.
private func forEach<Element>(_ elements: [Element], _ body: (Element) async throws -> Void) async throws {
  let start = ContinuousClock.now
  var done = 0
  for offset in 0..<17 {
    for index in stride(from: offset, to: elements.count, by: 17) {
      if done >= 500, ContinuousClock.now - start > timeout { return }
      try await body(elements[index])
      done += 1
    }
  }
}

/// Fails unless the entries are unchanged, with their stored times, and in the same order. Entries with equal times may
/// be swapped.
func expectUntouched(_ entries: [StorageEntry], since before: [StorageEntry], _ when: String) throws {
  var places: [CacheKey: Int] = [:]
  for (place, entry) in before.enumerated() { places[entry.key] = place }
  for entry in entries {
    guard let place = places[entry.key] else {
      throw Violation(
        "\(when), \(entry.key) was there although it had been absent before")
    }
    let old = before[place]
    guard entry.createdAt.isAbout(old.createdAt), entry.updatedAt.isAbout(old.updatedAt) else {
      throw Violation(
        "\(when), the times of \(entry.key) were \(describe([entry.createdAt, entry.updatedAt])) instead of "
          + "\(describe([old.createdAt, old.updatedAt])) as before")
    }
  }
  for (one, other) in zip(entries, entries.dropFirst()) where one.createdAt != other.createdAt {
    if places[one.key, default: 0] < places[other.key, default: 0] { continue }
    throw Violation("\(when), \(one.key) was before \(other.key), and previously after it")
  }
}

/// Fails unless the engine is empty according to every method.
func expectEmpty(_ engine: EngineUnderTest) async throws {
  try expect(try await engine.keyCount(), is: 0, "keyCount() of an empty engine")
  try expect(try await engine.allKeys(), is: [], "allKeys() of an empty engine")
  try expect(try await engine.readAllData(), is: [], "readAllData() of an empty engine")
  try expect(try await engine.readAllDataAndKeys(), are: [], "readAllDataAndKeys() of an empty engine")
  try expect(try await engine.readAllEntries(), is: [], "readAllEntries() of an empty engine")
  try expect(try await engine.readEntries(keys: [key("a")]), is: [], "readEntries(keys:) of an empty engine")
  try expect(try await engine.scan(.all, limit: nil), are: [], "scan(.all) of an empty engine")
}
