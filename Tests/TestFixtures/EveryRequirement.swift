internal import Foundation
package import StockroomCore

/// Calls each requirement of `StorageEngine` once, in declaration order, and throws the first error.
///
/// - Parameter goesOn: Whether to continue with the remaining calls after an error.
package func callEverything(_ engine: any StorageEngine, goOnAfterErrors goesOn: Bool = false) async throws {
  let first = CacheKey(verbatim: "1")
  let second = CacheKey(verbatim: "2")
  let both = [first, second]
  let calls: [() async throws -> Void] = [
    { try await engine.write(Data("a".utf8), key: first) },
    { try await engine.write([(key: first, data: Data("bb".utf8)), (key: second, data: Data("ccc".utf8))]) },
    { _ = try await engine.read(key: first) },
    { _ = try await engine.read(keys: both) },
    { _ = try await engine.readDataAndKeys(keys: both) },
    { _ = try await engine.readAllData() },
    { _ = try await engine.readAllDataAndKeys() },
    { try await engine.remove(key: first) },
    { try await engine.remove(keys: both) },
    { try await engine.removeAllData() },
    { _ = try await engine.keyExists(first) },
    { _ = try await engine.keysExist(both) },
    { _ = try await engine.keyCount() },
    { _ = try await engine.allKeys() },
    { _ = try await engine.createdAt(key: first) },
    { _ = try await engine.updatedAt(key: first) },
    { _ = try await engine.readAllEntries() },
    { _ = try await engine.readEntries(keys: both) },
    {
      try await engine.writeEntries([
        StorageEntry(key: second, data: Data("eeeee".utf8), createdAt: Date(), updatedAt: Date())
      ])
    },
    { try await engine.apply([.removeAll, .write(Data("dddd".utf8), key: first), .remove(key: second)]) },
    { _ = try await engine.scan(.all, limit: 3) },
    { _ = try await engine.withTransaction { try $0.keyCount() } },
    { _ = try await engine.changes() },
    { try await engine.verify() },
    { try await engine.close() },
  ]
  var firstError: (any Error)?
  for call in calls {
    do {
      try await call()
    } catch {
      firstError = firstError ?? error
      if !goesOn { break }
    }
  }
  if let firstError { throw firstError }
}
