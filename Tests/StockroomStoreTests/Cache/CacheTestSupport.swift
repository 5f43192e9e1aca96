import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore

/// A clock that only `advance(by:)` advances.
final class ManualClock: Sendable {
  private let date = MutexProtected(Date(timeIntervalSinceReferenceDate: 1_000_000))

  var now: @Sendable () -> Date { { [self] in date.withLock { $0 } } }

  func advance(by seconds: TimeInterval) { date.withLock { $0 += seconds } }
}

/// A value that closures share.
final class Shared<Value: Sendable>: Sendable {
  private let value: MutexProtected<Value>

  init(_ value: Value) { self.value = MutexProtected(value) }

  func withLock<Result: Sendable>(_ body: (inout Value) -> Result) -> Result { value.withLock { body(&$0) } }
}

/// An event that tasks can wait for.
final class Latch: Sendable {
  private let state = MutexProtected((isOpen: false, waiters: [CheckedContinuation<Void, Never>]()))

  func open() {
    let waiters = state.withLock { state in
      defer { state.waiters = [] }
      state.isOpen = true
      return state.waiters
    }
    for waiter in waiters { waiter.resume() }
  }

  func wait() async {
    await withCheckedContinuation { continuation in
      let isOpen = state.withLock { state in
        if !state.isOpen { state.waiters.append(continuation) }
        return state.isOpen
      }
      if isOpen { continuation.resume() }
    }
  }
}

/// An engine with hooks that can observe, delay and fail its calls.
final class HookedEngine: StorageEngine {
  struct Hooks: Sendable {
    var afterRead: (@Sendable (CacheKey) async -> Void)?
    /// Receives the changes, with nil for removals.
    var beforeChange: (@Sendable ([(key: CacheKey, data: Data?)]) async throws -> Void)?
    /// Called after a change has been made, before it is acknowledged.
    var afterChange: (@Sendable () async throws -> Void)?
    var afterScan: (@Sendable () async throws -> Void)?
    var scans = 0
    var reads = 0
  }

  let base: any StorageEngine
  private let hooks = MutexProtected(Hooks())

  init(_ base: any StorageEngine = MemoryStorageEngine()) { self.base = base }

  var capabilities: EngineCapabilities { base.capabilities }
  var scans: Int { hooks.withLock { $0.scans } }
  var reads: Int { hooks.withLock { $0.reads } }

  func afterRead(_ hook: (@Sendable (CacheKey) async -> Void)?) { hooks.withLock { $0.afterRead = hook } }

  func beforeChange(_ hook: (@Sendable ([(key: CacheKey, data: Data?)]) async throws -> Void)?) {
    hooks.withLock { $0.beforeChange = hook }
  }

  func afterChange(_ hook: (@Sendable () async throws -> Void)?) { hooks.withLock { $0.afterChange = hook } }

  func afterScan(_ hook: (@Sendable () async throws -> Void)?) { hooks.withLock { $0.afterScan = hook } }

  private func change(
    _ changes: [(key: CacheKey, data: Data?)], _ body: () async throws -> Void
  ) async throws {
    try await hooks.withLock { $0.beforeChange }?(changes)
    try await body()
    try await hooks.withLock { $0.afterChange }?()
  }

  func write(_ data: Data, key: CacheKey) async throws {
    try await change([(key, data)]) { try await base.write(data, key: key) }
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await change(dataAndKeys.map { ($0.key, $0.data) }) { try await base.write(dataAndKeys) }
  }

  func read(key: CacheKey) async throws -> Data? {
    hooks.withLock { $0.reads += 1 }
    let data = try await base.read(key: key)
    await hooks.withLock { $0.afterRead }?(key)
    return data
  }

  func remove(key: CacheKey) async throws {
    try await change([(key, nil)]) { try await base.remove(key: key) }
  }

  func remove(keys: [CacheKey]) async throws {
    try await change(keys.map { ($0, nil) }) { try await base.remove(keys: keys) }
  }

  func apply(_ operations: [StorageOperation]) async throws {
    try await change(
      operations.compactMap { operation in
        switch operation {
        case .write(let data, let key): (key, data)
        case .remove(let key): (key, nil)
        case .removeAll: nil
        }
      }
    ) { try await base.apply(operations) }
  }

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    hooks.withLock { $0.scans += 1 }
    let found = try await base.scan(range, limit: limit)
    try await hooks.withLock { $0.afterScan }?()
    return found
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction(body)
  }

  func allKeys() async throws -> [CacheKey] { try await base.allKeys() }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }
}

/// The code of the `StorageError` that `body` throws; nil if it throws nothing.
func code(of body: () async throws -> some Any) async -> StorageError.Code? {
  do {
    _ = try await body()
    return nil
  } catch {
    return (error as? StorageError)?.code
  }
}
