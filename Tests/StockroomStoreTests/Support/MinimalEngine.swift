import Foundation
import StockroomCore
import StockroomMemory

/// An engine with the six required methods and no capabilities.
struct MinimalEngine: StorageEngine {
  private let base: any StorageEngine

  init(_ base: any StorageEngine = MemoryStorageEngine()) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: key) }
  func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }
  func remove(key: CacheKey) async throws { try await base.remove(key: key) }
  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}
