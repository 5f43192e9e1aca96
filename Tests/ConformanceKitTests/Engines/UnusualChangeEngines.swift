import FaultyEngineWorker
import Foundation
import StockroomCore

@testable import ConformanceKit

// Correct engines that tell their subscribers of changes in a way of their own.

/// Finds changes by looking at its place now and then, and tells all who have subscribed by then of what it has found: also of what was
/// written right before.
final class TellsOfWhatCameBefore: FaultyEngine {
  let base: ReferenceEngine
  private let latest = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    if !dataAndKeys.isEmpty { latest.withLock { $0 = Set(dataAndKeys.map(\.key)) } }
  }

  func changes() async throws -> StorageChanges {
    let changes = try await base.changes()
    let (told, continuation) = StorageChanges.makeStream(leavingOut: ChangeOrigin.current)
    let found = latest.withLock { $0 }
    if !found.isEmpty { continuation.send(.keys(found)) }
    let task = Task {
      for await change in changes { continuation.send(change) }
      continuation.finish()
    }
    continuation.onTermination { task.cancel() }
    return told
  }
}

/// Takes its time for each entry of a batch, of as many as are written to find out how long that takes.
struct TakesTimeForWrites: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if dataAndKeys.count <= 100 { try await Task.sleep(for: .milliseconds(5 * dataAndKeys.count)) }
    try await base.write(dataAndKeys)
  }
}

/// Takes its time for each of the first writes.
final class WritesSlowlyAtFirst: FaultyEngine {
  let base: ReferenceEngine
  private let writes = AtomicCounter()
  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    if writes.increment() <= 25 { try await Task.sleep(for: .milliseconds(350)) }
    try await base.write(data, key: key)
  }
}
