import FaultyEngineWorker
import Foundation
import StockroomCore

@testable import ConformanceKit

// Correct engines with unusual change feeds.

/// Simulates a feed that polls its place: a subscriber also receives the last batch from before its subscription.
final class AnnouncesWhatCameBefore: FaultyEngine {
  let base: ReferenceEngine
  private let latest = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    if !dataAndKeys.isEmpty { latest.withLock { $0 = Set(dataAndKeys.map(\.key)) } }
  }

  func changes() async throws -> StorageChanges {
    let changes = try await base.changes()
    let (stream, continuation) = StorageChanges.makeStream(leavingOut: ChangeOrigin.current)
    let found = latest.withLock { $0 }
    if !found.isEmpty { continuation.send(.keys(found)) }
    let task = Task {
      for await change in changes { continuation.send(change) }
      continuation.finish()
    }
    continuation.onTermination { task.cancel() }
    return stream
  }
}

/// Is slow for each entry of a batch, up to the size that the check uses to measure its speed.
struct TakesTimeForWrites: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if dataAndKeys.count <= 100 { try await Task.sleep(for: .milliseconds(5 * dataAndKeys.count)) }
    try await base.write(dataAndKeys)
  }
}

/// Its first writes are slow.
final class WritesSlowlyAtFirst: FaultyEngine {
  let base: ReferenceEngine
  private let writes = AtomicCounter()
  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    if writes.increment() <= 25 { try await Task.sleep(for: .milliseconds(350)) }
    try await base.write(data, key: key)
  }
}
