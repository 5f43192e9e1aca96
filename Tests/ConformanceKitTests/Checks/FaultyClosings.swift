import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that fail when they are closed during other calls, or that are never closed.

extension FaultyEngineCase {
  static let ofClosings: [FaultyEngineCase] = [
    .init(persistent: .o3, "does what it refuses when it is closed") { base, _ in
      DoesWhatItRefuses(base: base)
    },
    .init(.o3, "knows one call of close() that waits", stallTimeout: .seconds(5)) {
      KnowsOneCloser(base: $0)
    },
    .init(.o3, "closes connections for which reads wait", also: [.r4], stallTimeout: .seconds(5)) {
      ClosesItsPool(base: $0)
    },
    .init(persistent: .r4, "returns the pages that it has read when it is closed", also: [.o3, .r3]) {
      base, _ in
      ReturnsPagesWhenClosed(base: base)
    },
    .init(persistent: .o3, "remembers that it has verified when it is closed", also: [.f2]) { base, _ in
      VerifiesOnce(base: base)
    },
    .init(persistent: .w4, "does a half of a batch when it is closed", also: [.o3]) { base, _ in
      CutsBatchesWhenClosed(base: base)
    },
    .init(
      persistent: .o3, "has its file open as long as it has subscribers", also: [.o4],
      claiming: ReferenceEngine.promises.union(.changeFeed)
    ) { base, place in OpensItsFileForSubscribers(base: base, place: place) },
    .init(
      persistent: .o4, "is held by the streams of its changes",
      claiming: ReferenceEngine.promises.union(.changeFeed)
    ) { base, _ in HeldBySubscribers(base: base) },
    .init(
      persistent: .o4, "is held until the next change once a subscriber has left",
      claiming: ReferenceEngine.promises.union(.changeFeed)
    ) { base, _ in HeldAfterSubscribers(base: base) },
    .init(persistent: .w6, "calls corrupted what was not closed", also: [.f2]) { base, place in
      CallsCorruptedWhatWasNotClosed(base: base, place: place)
    },
  ]
}

/// Writes, and then throws if it has been closed in the meantime.
final class DoesWhatItRefuses: FaultyEngine {
  let base: ReferenceEngine
  private let isClosing = MutexProtected(false)
  private let underWay = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    underWay.withLock { $0 += 1 }
    defer { underWay.withLock { $0 -= 1 } }
    try await base.write(data, key: key)
    for _ in 0..<3 { await Task.yield() }
    if isClosing.withLock({ $0 }) { throw StorageError(.closed, "The engine has been closed.") }
  }
  func close() async throws {
    isClosing.withLock { $0 = true }
    while underWay.withLock({ $0 }) > 0 { await Task.yield() }
    try await base.close()
  }
}

/// Applies half of a large batch, and throws, if it is closed during the call.
final class CutsBatchesWhenClosed: FaultyBatchEngine {
  let base: ReferenceEngine
  private let isClosing = MutexProtected(false)
  private let underWay = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func apply(_ operations: [StorageOperation]) async throws {
    underWay.withLock { $0 += 1 }
    defer { underWay.withLock { $0 -= 1 } }
    try operations.validate()
    guard operations.count > 100 else { return try await base.apply(operations) }
    // For a while the changes are not visible.
    for _ in 0..<operations.count {
      await Task.yield()
      guard isClosing.withLock({ $0 }) else { continue }
      try await base.apply(Array(operations.prefix(operations.count / 2)))
      throw StorageError(.closed, "The engine has been closed.")
    }
    try await base.apply(operations)
  }
  func close() async throws {
    isClosing.withLock { $0 = true }
    while underWay.withLock({ $0 }) > 0 { await Task.yield() }
    try await base.close()
  }
}

/// Opens its file for each subscriber.
struct OpensItsFileForSubscribers: FaultyEngine {
  let base: ReferenceEngine
  let place: URL
  func changes() async throws -> StorageChanges {
    let file = try FileHandle(forReadingFrom: place.appending(path: "reference.log"))
    return try await base.changes().passedOn { try? file.close() }
  }
}

/// Is retained by the end handler of each stream.
struct HeldBySubscribers: FaultyEngine {
  let base: ReferenceEngine
  func changes() async throws -> StorageChanges {
    try await base.changes().passedOn { [base] in withExtendedLifetime(base) {} }
  }
}

/// Cleans up after a cancelled subscriber only when something changes.
struct HeldAfterSubscribers: FaultyEngine {
  let base: ReferenceEngine
  func changes() async throws -> StorageChanges {
    try await base.changes().passedOn { [base] in
      Task {
        // A closed engine has nothing to clean up.
        guard let changes = try? await base.changes() else { return }
        for await _ in changes { break }
        withExtendedLifetime(base) {}
      }
    }
  }
}

/// Has a file in its place until it is closed. If the file existed when it was opened, verify() reports corruption.
final class CallsCorruptedWhatWasNotClosed: FaultyEngine {
  let base: ReferenceEngine
  private let mark: URL
  private let wasThere: Bool
  init(base: ReferenceEngine, place: URL) {
    self.base = base
    mark = place.appending(path: "open")
    wasThere = FileManager.default.fileExists(atPath: mark.path(percentEncoded: false))
    _ = FileManager.default.createFile(
      atPath: mark.path(percentEncoded: false), contents: nil, attributes: [.posixPermissions: 0o600])
  }
  func verify() async throws {
    if wasThere { throw StorageError(.corrupted, "The place was not closed.") }
    try await base.verify()
  }
  func close() async throws {
    try await base.close()
    try? FileManager.default.removeItem(at: mark)
  }
}

/// Reads pages of 64 entries. If it is closed meanwhile, returns those that it has.
struct ReturnsPagesWhenClosed: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    let all = try await base.readAllDataAndKeys()
    var found: [(key: CacheKey, data: Data)] = []
    for start in stride(from: 0, to: all.count, by: 64) {
      do {
        _ = try await base.keyCount()
      } catch let error as StorageError where error.code == .closed {
        break
      }
      found += all[start..<min(start + 64, all.count)]
      await Task.yield()
    }
    return found
  }
}

/// Has close() wait for writes. A second call takes the place of one that waits, which then never returns.
final class KnowsOneCloser: FaultyEngine {
  private struct State {
    var writes = 0
    var closer: UnsafeContinuation<Void, Never>?
  }
  let base: ReferenceEngine
  private let state = MutexProtected(State())
  init(base: ReferenceEngine) { self.base = base }

  func write(_ data: Data, key: CacheKey) async throws {
    state.withLock { $0.writes += 1 }
    defer {
      let closer = state.withLock { state in
        state.writes -= 1
        return state.writes == 0 ? state.closer.take() : nil
      }
      closer?.resume()
    }
    try await base.write(data, key: key)
    for _ in 0..<20 { await Task.yield() }
  }

  func close() async throws {
    await withUnsafeContinuation { continuation in
      let isUnused = state.withLock { state in
        if state.writes > 0 { state.closer = continuation }
        return state.writes == 0
      }
      if isUnused { continuation.resume() }
    }
    try await base.close()
  }
}

/// Has four connections for reads. Once it is closed, none of them is given to reads that wait for one.
final class ClosesItsPool: FaultyEngine {
  let base: ReferenceEngine
  private let connections = Places(4)
  private let isClosed = MutexProtected(false)
  init(base: ReferenceEngine) { self.base = base }

  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    if isClosed.withLock({ $0 }) { return try await base.readAllDataAndKeys() }
    await connections.enter()
    defer { if !isClosed.withLock({ $0 }) { connections.leave() } }
    for _ in 0..<20 { await Task.yield() }
    return try await base.readAllDataAndKeys()
  }

  func close() async throws {
    isClosed.withLock { $0 = true }
    try await base.close()
  }
}
