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
