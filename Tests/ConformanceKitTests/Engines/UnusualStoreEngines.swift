import FaultyEngineWorker
import Foundation
import StockroomCore

// Correct engines whose stores are difficult to check.

/// Stores times in steps of 4 ms, so that none is off by more than the 2 ms of rule W2, and only orders entries by
/// times.
struct OrdersByCoarseTimes: FaultyEngine {
  let base: ReferenceEngine
  private func coarse(_ date: Date) -> Date {
    Date(timeIntervalSince1970: (date.timeIntervalSince1970 * 250).rounded() / 250)
  }
  private func ordered(_ entries: [StorageEntry]) -> [StorageEntry] {
    entries.map { entry in
      StorageEntry(
        key: entry.key, data: entry.data, createdAt: coarse(entry.createdAt),
        updatedAt: coarse(entry.updatedAt))
    }.sorted { ($0.createdAt, $0.key) < ($1.createdAt, $1.key) }
  }
  func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key).map(coarse) }
  func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key).map(coarse) }
  func readAllEntries() async throws -> [StorageEntry] { ordered(try await base.readAllEntries()) }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    ordered(try await base.readEntries(keys: keys))
  }
}

/// Its elements never name keys, but only report that anything may have changed. It also reports changes from before
/// the subscription.
struct AnnouncesEverything: FaultyEngine {
  let base: ReferenceEngine
  func changes() async throws -> StorageChanges {
    let changes = try await base.changes()
    let (stream, continuation) = StorageChanges.makeStream(leavingOut: ChangeOrigin.current)
    if try await base.keyCount() > 0 { continuation.send(.everything) }
    let task = Task {
      for await _ in changes { continuation.send(.everything) }
      continuation.finish()
    }
    continuation.onTermination { task.cancel() }
    return stream
  }
}

/// Syncs its first change to a slow disk, which takes as long as 2,100 reads from memory.
final class SyncsForLongOnce: InterceptingEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((answerCount: 0, hasChanged: false))
  private let (disk, isIdle) = AsyncStream<Never>.makeStream()
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let result = try await work()
    guard isChange else {
      let count = state.withLock { state -> Int in
        state.answerCount += 1
        return state.answerCount
      }
      if count == 2_100 { isIdle.finish() }
      return result
    }
    let isFirst = state.withLock { state -> Bool in
      defer { state.hasChanged = true }
      return !state.hasChanged
    }
    if isFirst { for await _ in disk {} }
    return result
  }
}
