#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Makes requests whose keys have more than 1, 4 or 16 MiB together, which is the maximum length of a statement or a
/// message elsewhere. Nearly all keys are absent.
///
/// - Throws: ``Violation`` of the rule of the method that answers wrongly.
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
    if found.count == wanted.count, Set(found) == Set(wanted) { continue }
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
}
