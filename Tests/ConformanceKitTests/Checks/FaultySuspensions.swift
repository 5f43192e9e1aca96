import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that do not expect anything to happen where they suspend.

extension FaultyEngineCase {
  static let ofSuspensions: [FaultyEngineCase] = [
    .init(.c1, "writes everything back that it has read before it suspends", also: [.l2, .w1, .w4]) {
      WritesEverythingBack(base: $0)
    },
    .init(.c1, "counts a key that was absent before it suspends", also: [.l2, .w4]) {
      CountsAfterLooking(base: $0)
    },
    .init(.w4, "writes the second half of a batch after it has suspended", also: [.r3, .c1]) {
      WritesHalves(base: $0)
    },
    .init(.r3, "suspends between the pages of a list", also: [.w4, .c1]) { SuspendsBetweenPages(base: $0) },
    .init(.c4, "returns the pages that it had read when it was cancelled where it suspended") {
      ReturnsReadPages(base: $0)
    },
    .init(.r4, "returns the pages that it had read when it was closed where it suspended", also: [.r3, .o3]) {
      ReturnsReadPages(base: $0, whenClosed: true)
    },
  ]
}

/// Reads all entries, and later replaces all by what it has read and the change.
struct WritesEverythingBack: FaultyEngine {
  let base: ReferenceEngine
  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let old = try await base.readAllDataAndKeys()
    await Task.yield()
    try await base.apply(
      [.removeAll] + old.map { .write($0.data, key: $0.key) } + [.write(data, key: key)])
  }
}

/// Keeps the number of keys.
final class CountsAfterLooking: FaultyEngine {
  let base: ReferenceEngine
  private let more = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ data: Data, key: CacheKey) async throws {
    let wasThere = try await base.keyExists(key)
    await Task.yield()
    let isThere = try await base.keyExists(key)
    try await base.write(data, key: key)
    if !wasThere, isThere { more.withLock { $0 += 1 } }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    more.withLock { $0 = 0 }
  }
  func keyCount() async throws -> Int { try await base.keyCount() + more.withLock { $0 } }
}

struct WritesHalves: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    try await base.remove(keys: Array(keys.prefix(keys.count / 2)))
    await Task.yield()
    try await base.remove(keys: Array(keys.dropFirst(keys.count / 2)))
  }
}

struct SuspendsBetweenPages: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    var found: [StorageEntry] = []
    for start in stride(from: 0, to: keys.count, by: 100) {
      found += try await base.readEntries(keys: Array(keys[start..<min(start + 100, keys.count)]))
      await Task.yield()
    }
    return found
  }
  func readAllData() async throws -> [Data] {
    var (range, found): (KeyRange, [Data]) = (.all, [])
    while true {
      let page = try await base.scan(range, limit: 64)
      found += page.map(\.data)
      guard let last = page.last else { return found }
      range.after = last.key
      await Task.yield()
    }
  }
}

/// Suspends between the pages of a list, and returns those that it has when it is cancelled or closed meanwhile.
struct ReturnsReadPages: FaultyEngine {
  let base: ReferenceEngine
  var whenClosed = false
  func readAllData() async throws -> [Data] {
    let all = try await base.readAllData()
    var found: [Data] = []
    for (number, data) in all.enumerated() {
      if number % 64 == 63 {
        await Task.yield()
        do {
          if whenClosed { _ = try await base.keyCount() } else { try Task.checkCancellation() }
        } catch { break }
      }
      found.append(data)
    }
    return found
  }
}
