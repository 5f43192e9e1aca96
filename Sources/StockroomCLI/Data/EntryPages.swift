import Foundation
import StockroomCore

/// An entry of a list.
struct ListedEntry: Sendable {
  let key: CacheKey
  let data: Data
  /// Nil if the times were not requested.
  var times: (created: Date, updated: Date)?
}

/// The entries of a range in the order of their keys, a page at a time, so that a place of any size can be listed.
///
/// With the capability `snapshotReads`, the values of a page are from one snapshot. Different pages are from different
/// snapshots.
struct EntryPages {
  let engine: any StorageEngine
  let range: KeyRange
  let limit: Int
  let hasTimes: Bool

  /// The approximate number of bytes of the values in a page.
  private static let pageBytes = 8 << 20
  private static let mostEntries = 1_024

  /// Calls `body` with each page.
  ///
  /// Reads each value once, or twice if the times are requested. For an engine without `orderedScans`, all keys are in
  /// memory.
  func forEach(_ body: ([ListedEntry]) throws -> Void) async throws {
    if engine.capabilities.contains(.orderedScans) {
      try await forEachScanned(body)
    } else {
      try await forEachOfAllKeys(body)
    }
  }

  private func forEachScanned(_ body: ([ListedEntry]) throws -> Void) async throws {
    var (range, left) = (range, limit)
    // The sizes of the values are not known yet.
    var count = 8
    while left > 0 {
      try Task.checkCancellation()
      let page = try await engine.scan(range, limit: min(count, left))
      guard let last = page.last else { return }
      left -= page.count
      try body(try await listed(page))
      range.after = last.key
      count = Self.count(after: page.map(\.data.count))
    }
  }

  private func forEachOfAllKeys(_ body: ([ListedEntry]) throws -> Void) async throws {
    var keys = try await engine.allKeys().filter(range.contains).sorted()[...]
    var (count, left) = (8, limit)
    while !keys.isEmpty, left > 0 {
      try Task.checkCancellation()
      let page = try await engine.readDataAndKeys(keys: Array(keys.prefix(min(count, left))))
      keys = keys.dropFirst(min(count, left))
      left -= page.count
      if page.isEmpty { continue }
      try body(try await listed(page))
      count = Self.count(after: page.map(\.data.count))
    }
  }

  /// The number of entries to read next.
  private static func count(after sizes: [Int]) -> Int {
    let mean = max(1, sizes.reduce(0, +) / max(1, sizes.count))
    // At most twice as many as before, since the next values may be much larger.
    return max(1, min(mostEntries, 2 * sizes.count, pageBytes / mean))
  }

  private func listed(_ page: [(key: CacheKey, data: Data)]) async throws -> [ListedEntry] {
    guard hasTimes else { return page.map { ListedEntry(key: $0.key, data: $0.data) } }
    // Entries that have been removed in the meantime are omitted.
    return try await engine.readEntries(keys: page.map(\.key)).sorted { $0.key < $1.key }.map {
      ListedEntry(key: $0.key, data: $0.data, times: ($0.createdAt, $0.updatedAt))
    }
  }
}
