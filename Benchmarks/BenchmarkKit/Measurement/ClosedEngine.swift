#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Takes the place of an engine that is not open: every read and write throws `closed`.
struct ClosedEngine: StorageEngine {
  private var error: StorageError { StorageError(.closed, "The engine of the benchmark is closed.") }

  func write(_ data: Data, key: CacheKey) async throws { throw error }
  func read(key: CacheKey) async throws -> Data? { throw error }
  func remove(key: CacheKey) async throws { throw error }
  func allKeys() async throws -> [CacheKey] { throw error }
  func createdAt(key: CacheKey) async throws -> Date? { throw error }
  func updatedAt(key: CacheKey) async throws -> Date? { throw error }
}
