import Foundation
import StockroomCore

/// An engine that performs every change with `apply(_:)`.
package protocol ApplyingEngine: StorageEngine {}

extension ApplyingEngine {
  package func write(_ data: Data, key: CacheKey) async throws { try await apply([.write(data, key: key)]) }

  package func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await apply(dataAndKeys.map { .write($0.data, key: $0.key) })
  }

  package func remove(key: CacheKey) async throws { try await apply([.remove(key: key)]) }

  package func remove(keys: [CacheKey]) async throws { try await apply(keys.map { .remove(key: $0) }) }

  package func removeAllData() async throws { try await apply([.removeAll]) }
}
