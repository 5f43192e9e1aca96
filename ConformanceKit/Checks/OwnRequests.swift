#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Concurrent requests that an engine may combine although they differ.

/// Makes requests while other tasks make requests of the same kind and size for other keys.
func askForOwnKeys(_ task: Int, _ engine: EngineUnderTest) async throws {
  let own = entries(keys(3, prefix: "own \(task)/"))
  try await engine.write(own)
  let request = own.map(\.key) + [key("absent")]
  for _ in 0..<2 {
    for method in [ReadMethod.readMany, .readDataAndKeys, .readEntries] {
      let found = try await method.found(of: request, in: engine).compactMap { $0 }
      try expectOwn(Set(found), is: Set(own.map(\.data)), method)
    }
    try expectOwn(Set(try await engine.keysExist(request)), is: Set(own.map(\.key)), .keysExist)
    let scanned = try await engine.scan(.prefix("own \(task)/"), limit: 4)
    try expectOwn(Set(scanned.map(\.data)), is: Set(own.map(\.data)), .scan)
  }
}

/// Fails by the rule of the check if the method returned what another task asked for, and otherwise by that of the
/// method.
private func expectOwn<Found>(_ found: Set<Found>, is own: Set<Found>, _ method: ReadMethod) throws {
  if found == own { return }
  let foreign = found.subtracting(own).count
  throw Violation(
    "\(method.call) of \(own.count) existing keys, while other tasks asked for as many others, returned \(found.count), "
      + "of which \(foreign) were others", rule: foreign > 0 ? nil : method.rule)
}

/// Makes requests for the same keys in different orders, with different repeats, and scans of the same range with
/// different limits: at first one by one, then all at once.
func askForSameKeysDifferently(_ engine: EngineUnderTest) async throws {
  let all = entries(keys(6, prefix: "same-"))
  try await engine.write(all)
  for method in [ReadMethod.readMany, .readDataAndKeys, .keysExist, .scan] {
    do {
      for asker in all.indices { try await ask(method, for: all, as: asker, engine) }
    } catch let violation as Violation {
      // The fault does not depend on concurrent requests.
      throw Violation(violation.description, rule: method.rule)
    }
    try await gather(0..<24) { try await ask(method, for: all, as: $0, engine) }
  }
}

/// Makes a request for the same entries as other askers, in an order of its own or with a limit of its own.
private func ask(
  _ method: ReadMethod, for all: [(key: CacheKey, data: Data)], as asker: Int, _ engine: EngineUnderTest
) async throws {
  let first = asker % all.count
  let rotated = Array(all[first...] + all[..<first])
  let repeated = asker.isMultiple(of: 4) ? rotated + rotated.prefix(2) : rotated
  let what = "\(method.call), one of several different requests for the same keys,"
  switch method {
  case .readMany:
    try expect(try await engine.read(keys: repeated.map(\.key)), is: repeated.map(\.data), what)
  case .readDataAndKeys:
    try expect(try await engine.readDataAndKeys(keys: repeated.map(\.key)), are: repeated, what)
  case .keysExist:
    try expect(try await engine.keysExist(rotated.map(\.key)), is: rotated.map(\.key), what)
  default:
    let limit = first + 1
    let found = try await engine.scan(.prefix("same-"), limit: limit)
    let wanted = Array(all.sorted { $0.key < $1.key }.prefix(limit))
    try expect(found, are: wanted, "\(what) with a limit of \(limit),")
  }
}
