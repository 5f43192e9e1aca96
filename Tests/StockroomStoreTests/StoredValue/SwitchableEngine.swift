import Foundation
import StockroomCore
import StockroomMemory

/// An in-memory engine whose calls can be held or made to fail.
actor SwitchableEngine: StorageEngine {
  private let engine = MemoryStorageEngine()
  private var isHeld = false
  private var waiting: [CheckedContinuation<Void, Never>] = []
  private var error: (any Error)?

  /// Makes every write, read and removal wait until ``release()``.
  func hold() { isHeld = true }

  func release() {
    isHeld = false
    for continuation in waiting { continuation.resume() }
    waiting = []
  }

  /// Makes every write, read and removal throw the error; nil ends that.
  func fail(with error: (any Error)?) { self.error = error }

  private func pass() async throws {
    if isHeld { await withCheckedContinuation { waiting.append($0) } }
    if let error { throw error }
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try await pass()
    try await engine.write(data, key: key)
  }

  func read(key: CacheKey) async throws -> Data? {
    try await pass()
    return try await engine.read(key: key)
  }

  func remove(key: CacheKey) async throws {
    try await pass()
    try await engine.remove(key: key)
  }

  func allKeys() async throws -> [CacheKey] { try await engine.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await engine.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await engine.updatedAt(key: key) }
}
