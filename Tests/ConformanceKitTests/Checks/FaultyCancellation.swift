import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines that handle cancelled calls wrongly.

extension FaultyEngineCase {
  static let ofCancellation: [FaultyEngineCase] = [
    .init(.l2, "counts writes that were cancelled", also: [.c4]) { CountsCancelledWrites(base: $0) },
    .init(.c4, "throws after the work") { ThrowsAfterTheWork(base: $0) },
    .init(.c4, "throws after any work") { ThrowsAfterAnyWork(base: $0) },
    .init(.c4, "throws after entries of others are written") { ThrowsAfterEntries(base: $0) },
    .init(.c4, "returns the entries that it had read") { ReturnsFirstEntries(base: $0) },
    .init(.c4, "stops half way") { StopsHalfWay(base: $0) },
    .init(.c4, "keeps the snapshot of a list that was cancelled") { KeepsCancelledSnapshots(base: $0) },
    .init(.c4, "gives up reading") { GivesUpReading(base: $0) },
    .init(.c4, "returns the pages that it had read") { ReturnsFirstPages(base: $0) },
    // The underlying library reports an interruption.
    .init(.c4, "calls a cancellation an input/output error") { CallsCancellationIO(base: $0) },
    .init(.c4, "does not recover from a cancellation") { DoesNotRecover(base: $0) },
    .init(.c4, "closes half when it is cancelled") { ClosesHalf(base: $0) },
    .init(.c4, "calls a verification that is cancelled corruption") { CallsCancellationCorruption(base: $0) },
    .init(.c4, "keeps the place locked when its opening is cancelled") { place in
      try await PlaceRegister.opening(place) {
        RegistersItsPlace(base: try ReferenceEngine(directory: place))
      }
    },
    .init(
      .c4, "subscribes nowhere when it is cancelled",
      claiming: [.atomicBatches, .snapshotReads, .orderedScans, .changeFeed], stallTimeout: .seconds(5)
    ) { SubscribesNowhere(base: $0) },
  ]
}

/// Reports a file that could not be read because of a cancellation as corrupted.
final class CallsCancellationCorruption: FaultyEngine {
  let base: ReferenceEngine
  init(base: ReferenceEngine) { self.base = base }
  func verify() async throws {
    for _ in 0..<20 {
      await Task.yield()
      if Task.isCancelled { throw StorageError(.corrupted, "A file could not be read to its end.") }
    }
    try await base.verify()
  }
}

/// The places that are open.
private enum PlaceRegister {
  private static let places = MutexProtected<Set<String>>([])

  /// Registers a place before it is opened, and removes it when the engine is closed.
  static func opening(_ place: URL, _ open: () throws -> RegistersItsPlace) async throws -> RegistersItsPlace
  {
    guard places.withLock({ $0.insert(place.path).inserted }) else {
      throw StorageError(.locked, "\(place.path) is open.")
    }
    for _ in 0..<20 { await Task.yield() }
    try Task.checkCancellation()
    let engine = try open()
    engine.forget = { places.withLock { _ = $0.remove(place.path) } }
    return engine
  }
}

private final class RegistersItsPlace: FaultyEngine, @unchecked Sendable {
  let base: ReferenceEngine
  // Safe to share: set once, before the engine is shared.
  var forget: () -> Void = {}
  init(base: ReferenceEngine) { self.base = base }
  deinit { forget() }
  func close() async throws {
    try await base.close()
    forget()
  }
}

/// Checks for cancellation after the work is done.
struct ThrowsAfterTheWork: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try await Task { [base] in try await base.write(data, key: key) }.value
    try Task.checkCancellation()
  }
}

/// Checks for cancellation after every kind of change.
struct ThrowsAfterAnyWork: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    guard isChange else { return try await work() }
    let result = try await Task { try await work() }.value
    try Task.checkCancellation()
    return result
  }
}

/// Stops in the middle of a batch when it is cancelled.
struct StopsHalfWay: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    if !Task.isCancelled { return try await base.remove(keys: keys) }
    try await Task { [base] in try await base.remove(keys: Array(keys.prefix(keys.count / 2))) }.value
    throw CancellationError()
  }
}

/// Returns no entries to a cancelled reader.
struct GivesUpReading: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    Task.isCancelled ? [] : try await base.readAllDataAndKeys()
  }
}

struct ReturnsFirstPages: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    var (range, found): (KeyRange, [(key: CacheKey, data: Data)]) = (.all, [])
    while true {
      let page = try await base.scan(range, limit: 20)
      found += page
      guard page.count == 20, !Task.isCancelled, let last = page.last else { return found }
      range.after = last.key
      await Task.yield()
    }
  }
}

struct CallsCancellationIO: InterceptingEngine {
  let base: ReferenceEngine
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    do {
      return try await work()
    } catch is CancellationError {
      throw StorageError(.io, "The operation was interrupted.")
    }
  }
}

/// Leaves its transaction open when it is cancelled.
final class DoesNotRecover: InterceptingEngine {
  let base: ReferenceEngine
  private let cancellations = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if cancellations.withLock({ $0 }) > 3 {
      throw StorageError(.io, "A transaction cannot be begun within a transaction.")
    }
    do {
      return try await work()
    } catch let error as CancellationError {
      cancellations.withLock { $0 += 1 }
      throw error
    }
  }
}

final class ClosesHalf: FaultyEngine {
  let base: ReferenceEngine
  private let isHalfClosed = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }
  func close() async throws {
    if isHalfClosed.withLock({ $0 }) { throw StorageError(.io, "The connection has been closed.") }
    if Task.isCancelled {
      isHalfClosed.withLock { $0 = true }
      throw CancellationError()
    }
    try await base.close()
  }
}

/// Checks for cancellation after importing entries.
struct ThrowsAfterEntries: FaultyEngine {
  let base: ReferenceEngine
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    // Gives time for a cancellation during the call, however fast the engine and however busy the machine is.
    try await Task.sleep(for: .milliseconds(20))
  }
}

/// When it is cancelled, it returns the entries that it has read so far.
struct ReturnsFirstEntries: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    var found: [StorageEntry] = []
    for start in stride(from: 0, to: keys.count, by: 100) {
      if start > 0, Task.isCancelled { return found }
      found += try await base.readEntries(keys: Array(keys[start..<min(start + 100, keys.count)]))
      await Task.yield()
    }
    return found
  }
}

/// Returns a stream that never yields to a cancelled task.
final class SubscribesNowhere: FaultyEngine {
  let base: ReferenceEngine
  private let kept = MutexProtected<[StorageChanges.Continuation]>([])
  init(base: ReferenceEngine) { self.base = base }
  func changes() async throws -> StorageChanges {
    guard Task.isCancelled else { return try await base.changes() }
    let (changes, continuation) = StorageChanges.makeStream(keyLimit: StorageChanges.defaultKeyLimit)
    kept.withLock { $0.append(continuation) }
    return changes
  }
}

/// Counts a write before it checks for cancellation.
final class CountsCancelledWrites: FaultyEngine {
  let base: ReferenceEngine
  private let surplus = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    do {
      try await base.write(data, key: key)
    } catch is CancellationError {
      surplus.withLock { $0 += 1 }
      throw CancellationError()
    }
  }
  func keyCount() async throws -> Int { try await base.keyCount() + surplus.withLock { $0 } }
}

/// Does not end the snapshot of a list that is cancelled, and uses it for all later ones.
final class KeepsCancelledSnapshots: FaultyEngine {
  let base: ReferenceEngine
  private let snapshot = MutexProtected<[StorageEntry]?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func readAllEntries() async throws -> [StorageEntry] {
    if let kept = snapshot.withLock({ $0 }) { return kept }
    if Task.isCancelled {
      let entries = try base.entries()
      snapshot.withLock { $0 = entries }
      throw CancellationError()
    }
    return try await base.readAllEntries()
  }
}

/// The task of the first write waits a moment for others, and then writes them all. If it is cancelled, they all throw.
final class WritesForOthers: FaultyEngine {
  private typealias Waiting = (
    operation: StorageOperation, continuation: CheckedContinuation<Void, any Error>
  )
  let base: ReferenceEngine
  /// The writes that wait; nil if no task waits for others.
  private let waiting = MutexProtected<[Waiting]?>(nil)
  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    try Task.checkCancellation()
    let operation = StorageOperation.write(data, key: key)
    let isFirst = waiting.withLock { waiting in
      defer { if waiting == nil { waiting = [] } }
      return waiting == nil
    }
    guard isFirst else {
      return try await withCheckedThrowingContinuation { continuation in
        let isLate = waiting.withLock { waiting in
          waiting?.append((operation, continuation))
          return waiting == nil
        }
        guard isLate else { return }
        Task { [base] in
          do {
            try await base.apply([operation])
            continuation.resume()
          } catch {
            continuation.resume(throwing: error)
          }
        }
      }
    }
    // Ends early if the task is cancelled.
    try? await Task.sleep(for: .milliseconds(5))
    let others = waiting.withLock { $0.take() } ?? []
    do {
      try Task.checkCancellation()
      try await base.apply([operation] + others.map(\.operation))
      for (_, continuation) in others { continuation.resume() }
    } catch {
      for (_, continuation) in others { continuation.resume(throwing: error) }
      throw error
    }
  }
}
