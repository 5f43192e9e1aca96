import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import TestFixtures

// Engines that load their entries in their first call, and do not expect another call meanwhile.

/// Loads its entries in every call that begins before they have been loaded, and so undoes what was changed meanwhile.
final class LoadsInEachCall: InterceptingEngine {
  let base: ReferenceEngine
  private let isLoaded = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if !isLoaded.withLock({ $0 }) {
      try await load()
      isLoaded.withLock { $0 = true }
    }
    return try await work()
  }
  private func load() async throws {
    let stored = try await base.readAllEntries()
    if stored.isEmpty { return }
    // Lets other calls run, as reading a file would.
    for _ in 0..<Int.random(in: 5...60) { await Task.yield() }
    let (known, now) = (Set(stored.map(\.key)), try await base.allKeys())
    try await base.remove(keys: now.filter { !known.contains($0) })
    // Only entries that have changed, since the others must keep their times.
    let changed = Dictionary(
      uniqueKeysWithValues: try await base.readAllDataAndKeys().map { ($0.key, $0.data) })
    try await base.writeEntries(stored.filter { changed[$0.key] != $0.data })
  }
}

/// Writes what it has in memory to its file when it is closed.
final class SavesWhatItHasLoaded: InterceptingEngine {
  /// What it has in memory when it is closed; the rest is lost.
  enum Memory { case nothing, aPart }
  private enum State { case isUnused, isLoading, isLoaded }
  let base: ReferenceEngine
  private let memory: Memory
  private let state = MutexProtected(State.isUnused)
  init(base: ReferenceEngine, _ memory: Memory) { (self.base, self.memory) = (base, memory) }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if state.withLock({ $0 }) != .isLoaded {
      state.withLock { $0 = .isLoading }
      // Lets other calls run, as reading a file would.
      for _ in 0..<40 { await Task.yield() }
      state.withLock { $0 = .isLoaded }
    }
    return try await work()
  }
  func close() async throws {
    switch (memory, state.withLock({ $0 })) {
    // Only fails if the engine has been closed, which does not matter here.
    case (.nothing, .isUnused), (.aPart, .isLoading): try? await base.removeAllData()
    default: break
    }
    try await base.close()
  }
}

/// Connects in its first call. If that is cancelled, it never tries again.
final class KeepsItsFirstCancellation: InterceptingEngine {
  let base: ReferenceEngine
  private let isConnected = MutexProtected<Bool?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if isConnected.withLock({ $0 }) == nil {
      for _ in 0..<3 { await Task.yield() }
      let isCancelled = Task.isCancelled
      isConnected.withLock { $0 = $0 ?? !isCancelled }
    }
    if isConnected.withLock({ $0 }) == false { throw CancellationError() }
    return try await work()
  }
}
