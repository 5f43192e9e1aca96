import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that treat values of some size in their own ways.

/// Returns values of some size in eight buffers, each of which is used again for the eighth read after it.
final class UsesBuffersAgain: FaultyEngine {
  private static let size = 65_536
  let base: ReferenceEngine
  private let state: MutexProtected<(buffers: [UnsafeMutableRawBufferPointer], next: Int)>

  init(base: ReferenceEngine) {
    self.base = base
    // They are not freed, since the values may be in use.
    let buffers = (0..<8).map { _ in
      UnsafeMutableRawBufferPointer.allocate(byteCount: Self.size, alignment: 16)
    }
    state = MutexProtected((buffers, 0))
  }

  func read(key: CacheKey) async throws -> Data? {
    guard let value = try await base.read(key: key), (4_096...Self.size).contains(value.count) else {
      return try await base.read(key: key)
    }
    return state.withLock { state in
      let buffer = state.buffers[state.next]
      state.next = (state.next + 1) % state.buffers.count
      value.copyBytes(to: buffer)
      guard let start = buffer.baseAddress else { return value }
      return Data(bytesNoCopy: start, count: value.count, deallocator: .none)
    }
  }
}

/// Stores equal values of a batch once, and removes them with the first of their keys.
final class RemovesEqualValues: FaultyEngine {
  let base: ReferenceEngine
  private let equal = MutexProtected<[CacheKey: [(key: CacheKey, data: Data)]]>([:])
  init(base: ReferenceEngine) { self.base = base }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    equal.withLock { equal in
      for entry in dataAndKeys { equal[entry.key] = nil }
      for (_, entries) in Dictionary(grouping: dataAndKeys.filter { $0.data.count >= 1_024 }, by: \.data)
      where entries.count > 1 {
        for entry in entries { equal[entry.key] = entries }
      }
    }
  }

  func remove(key: CacheKey) async throws {
    try await base.remove(key: key)
    let others = equal.withLock { $0.removeValue(forKey: key) } ?? []
    for other in others where try await base.read(key: other.key) == other.data {
      try await base.remove(key: other.key)
    }
  }
}

/// Overwrites a value of the same size of more than a mebibyte in two steps.
struct OverwritesInHalves: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    guard data.count > 1 << 20, let old = try await base.read(key: key), old.count == data.count else {
      return try await base.write(data, key: key)
    }
    try Task.checkCancellation()
    let half = data.count / 2
    // In a task that is not cancelled, so that both halves are written.
    try await Task { [base] in
      try await base.write(data.prefix(half) + old.dropFirst(half), key: key)
      await Task.yield()
      try await base.write(data, key: key)
    }.value
  }
}
