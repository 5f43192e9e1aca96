package import Foundation
package import StockroomCore

/// An engine whose six required methods are those of another one. Everything else is the default of the protocol, or its own.
package protocol MinimalForwardingEngine: StorageEngine {
  var base: any StorageEngine { get }
}

extension MinimalForwardingEngine {
  package func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: key) }
  package func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }
  package func remove(key: CacheKey) async throws { try await base.remove(key: key) }
  package func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  package func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  package func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}
