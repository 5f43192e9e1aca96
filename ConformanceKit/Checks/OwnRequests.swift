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
  func expectOwn(_ found: [(key: CacheKey, data: Data)], _ method: ReadMethod) throws {
    try expect(found, are: own, "\(method.call), while other tasks asked for other keys,")
  }
  for _ in 0..<2 {
    let values = try await engine.read(keys: request)
    try expect(values, is: own.map(\.data), "read(keys:), while other tasks asked for other keys,")
    try expectOwn(try await engine.readDataAndKeys(keys: request), .readDataAndKeys)
    let listed = try await engine.readEntries(keys: request).map { (key: $0.key, data: $0.data) }
    try expectOwn(listed.sorted { $0.key < $1.key }, .readEntries)
    try expect(
      try await engine.keysExist(request), is: own.map(\.key),
      "keysExist(_:), while other tasks asked for other keys,")
    try expectOwn(try await engine.scan(.prefix("own \(task)/"), limit: 4), .scan)
  }
}
