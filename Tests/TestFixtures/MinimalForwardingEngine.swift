package import Foundation
package import StockroomCore

/// An engine that forwards the six required methods to another one. All other methods are the protocol's
/// defaults, unless it implements them.
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
