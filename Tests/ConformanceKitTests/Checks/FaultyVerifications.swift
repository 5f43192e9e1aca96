import FaultyEngineWorker
import Foundation
import StockroomCore
import StockroomMemory
import Synchronization

// Engines that change something in verify().

/// After verify(), the file that it writes when it is closed has entries that had been removed before.
final class SavesWhatItVerifies: FaultyEngine {
  let base: ReferenceEngine
  private let state = MutexProtected((removed: [CacheKey: Data](), saved: [CacheKey: Data]()))
  init(base: ReferenceEngine) { self.base = base }

  func remove(keys: [CacheKey]) async throws {
    let old = try await base.readDataAndKeys(keys: keys)
    try await base.remove(keys: keys)
    state.withLock { state in
      for (key, data) in old { state.removed[key] = data }
    }
  }

  func verify() async throws {
    try await base.verify()
    state.withLock { $0.saved = $0.removed }
  }

  func close() async throws {
    let saved = state.withLock { state in
      defer { state = ([:], [:]) }
      return state.saved
    }
    guard !saved.isEmpty else { return try await base.close() }
    let present = Set(try await base.allKeys())
    let revived = saved.filter { !present.contains($0.key) }
    if !revived.isEmpty { try await base.write(revived.map { (key: $0.key, data: $0.value) }) }
    try await base.close()
  }
}

/// Writes each entry again when it verifies it.
struct TouchesWhatItVerifies: FaultyEngine {
  let base: ReferenceEngine
  func verify() async throws {
    try await base.verify()
    try await base.write(try await base.readAllDataAndKeys())
  }
}

/// Calls entries corrupted that were updated later than now.
struct RefusesTheFuture: FaultyEngine {
  let base: MemoryStorageEngine
  var capabilities: EngineCapabilities { base.capabilities.subtracting([.transactions, .changeFeed]) }
  func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }
  func verify() async throws {
    try await base.verify()
    guard try await base.readAllEntries().contains(where: { $0.updatedAt > Date() + 60 }) else { return }
    throw StorageError(.corrupted, "The time of an entry is in the future.")
  }
}

/// Does not verify again what it has verified, not even when it has been closed.
final class VerifiesOnce: FaultyEngine {
  let base: ReferenceEngine
  private let isVerified = Atomic(false)
  init(base: ReferenceEngine) { self.base = base }
  func verify() async throws {
    if isVerified.load(ordering: .relaxed) { return }
    try await base.verify()
    isVerified.store(true, ordering: .relaxed)
  }
}

/// Verifies entries in the order of their keys, and returns that order from the next list.
final class OrdersWhatItVerifies: FaultyEngine {
  let base: ReferenceEngine
  private let isVerified = Atomic(false)
  init(base: ReferenceEngine) { self.base = base }

  func verify() async throws {
    try await base.verify()
    isVerified.store(true, ordering: .relaxed)
  }

  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    let isFirst = isVerified.exchange(false, ordering: .relaxed)
    return isFirst ? entries.sorted { $0.key < $1.key } : entries
  }
}
