#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// Makes requests whose keys together have more than 1, 4 or 16 MiB, which are common limits for the length of a
/// statement or a message. Nearly all keys are absent. Then lists entries with all of these keys: a page of a list may
/// be limited by bytes.
///
/// - Throws: ``Violation`` of the rule of the method that returns a wrong result.
func checkRequestsOfLongKeys(_ context: CheckContext) async throws {
  let engine = try await context.open(
    context.root.appending(path: "long keys", directoryHint: .isDirectory))
  let wanted = context.byLevel(quick: 2_200, standard: 8_800, exhaustive: 34_000)
  let affordable = try await context.affordableEntries(within: 1)
  let count = min(wanted, max(200, min(affordable.reads, affordable.writes)))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) long keys in a request") }
  let keys = keys(count, prefix: String(repeating: "k", count: CacheKey.maximumLength - 5))
  let present = [0, count / 2, count - 1].map { keys[$0] }
  try await engine.write(entries(present))
  let what = "of \(count) keys of \(CacheKey.maximumLength) bytes"
  for method in ReadMethod.allCases where method.isOfManyKeys {
    context.noteProgress()
    let found: [Data?]
    do {
      found = try await method.found(of: keys, in: engine)
    } catch let failure as CallFailure {
      throw Violation("\(what), \(failure)", rule: method.rule)
    }
    let wanted: [Data?] = present.map { method.givesValues ? value(for: $0) : nil }
    if found.hasSameElements(as: wanted) { continue }
    throw Violation(
      "\(method.call) \(what), of which \(present.count) exist, found \(describe(found))", rule: method.rule)
  }
  context.noteProgress()
  do {
    try await engine.remove(keys: Array(keys.dropLast()))
    try await expectStored(entries([present[2]]), absent: [present[0], present[1]], in: engine)
  } catch let failure as CallFailure {
    throw Violation("\(what), \(failure)", rule: .d1)
  } catch let violation as Violation {
    throw Violation("after remove(keys:) \(what), \(violation)", rule: .d1)
  }
  try await expectAllFound(keys, "\(what), all of which exist,", in: engine, context)
}

/// Writes entries with these keys. Fails unless every method of many entries finds all of them, and removeAllData()
/// removes them.
private func expectAllFound(
  _ keys: [CacheKey], _ what: String, in engine: EngineUnderTest, _ context: CheckContext
) async throws {
  func blaming<Result>(_ rule: ContractRule, _ call: () async throws -> Result) async throws -> Result {
    context.noteProgress()
    do {
      return try await call()
    } catch let failure as CallFailure {
      throw Violation("\(what) \(failure)", rule: rule)
    }
  }
  try await blaming(.w1) { try await engine.write(entries(keys)) }
  let values = keys.map { value(for: $0) as Data? }
  let none = keys.map { _ in nil as Data? }
  for method in ReadMethod.allCases where !method.isOfOneKey {
    let found = try await blaming(method.rule) { try await method.found(of: keys, in: engine) }
    if found.hasSameElements(as: method.givesValues ? values : none) { continue }
    throw Violation(
      "\(method.call) \(what) found \(found.count) entries, or other values than theirs", rule: method.rule)
  }
  try await blaming(.d2) { try await engine.removeAllData() }
  let left = try await blaming(.l2) { try await engine.keyCount() }
  if left > 0 { throw Violation("after removeAllData() \(what) keyCount() was \(left)", rule: .d2) }
}
