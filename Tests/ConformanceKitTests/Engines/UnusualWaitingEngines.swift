import FaultyEngineWorker
import Foundation
import StockroomCore

// Correct engines whose calls wait for a disk, for others, or for a server.

/// Waits for a slow disk after each single write.
struct SyncsSlowly: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    try await Task.sleep(for: .milliseconds(120))
  }
}

/// Its close() waits until no call is in progress, and admits calls until then.
final class ClosesWhenQuiet: InterceptingEngine {
  let base: ReferenceEngine
  private let calls = MutexProtected((count: 0, isClosed: false))
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    try calls.withLock { calls in
      if calls.isClosed { throw StorageError(.closed, "The engine has been closed.") }
      calls.count += 1
    }
    defer { calls.withLock { $0.count -= 1 } }
    return try await work()
  }
  func close() async throws {
    while !closeIfQuiet() { try await Task.sleep(for: .milliseconds(1)) }
    try await base.close()
  }
  private func closeIfQuiet() -> Bool {
    calls.withLock { calls in
      if calls.count == 0 { calls.isClosed = true }
      return calls.isClosed
    }
  }
}

/// Its server performs one call at a time. A call that has waited for 100 ms throws `unavailable`.
struct TimesOutInAQueue: InterceptingEngine {
  let base: ReferenceEngine
  private let turn = Places(1)

  init(base: ReferenceEngine) { self.base = base }

  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let start = ContinuousClock.now
    await turn.enter()
    defer { turn.leave() }
    guard ContinuousClock.now - start < .milliseconds(100) else {
      throw StorageError(.unavailable, "The server has too much to do.")
    }
    try await Task.sleep(for: .milliseconds(1))
    return try await work()
  }
}
