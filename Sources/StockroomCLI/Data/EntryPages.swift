import Foundation
import StockroomCore

/// An entry of a list.
struct ListedEntry: Sendable {
  let key: CacheKey
  let data: Data
  /// Nil if they were not asked for.
  var times: (created: Date, updated: Date)?
}

/// The entries of a range in the order of their keys, a page at a time, so that a place of any size can be listed.
///
/// Each page is a snapshot, and later pages are of later ones.
struct EntryPages {
  let engine: any StorageEngine
  let range: KeyRange
  let limit: Int
  let hasTimes: Bool

  /// About how many bytes of values are in memory at a time.
  private static let pageBytes = 8 << 20
  private static let mostEntries = 1_024

  /// Calls `body` with each page, none of which is empty.
  ///
  /// Costs as much as reading the values. An engine without ordered scans has all keys in memory.
  func forEach(_ body: ([ListedEntry]) throws -> Void) async throws {
    if engine.capabilities.contains(.orderedScans) {
      try await forEachScanned(body)
    } else {
      try await forEachOfAllKeys(body)
    }
  }

  private func forEachScanned(_ body: ([ListedEntry]) throws -> Void) async throws {
    var (range, left) = (range, limit)
    // Nothing is known of the sizes yet.
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

  /// How many entries to read next.
  private static func count(after sizes: [Int]) -> Int {
    let mean = max(1, sizes.reduce(0, +) / max(1, sizes.count))
    // No more than twice as many as before: large values may be next to each other.
    return max(1, min(mostEntries, 2 * sizes.count, pageBytes / mean))
  }

  private func listed(_ page: [(key: CacheKey, data: Data)]) async throws -> [ListedEntry] {
    guard hasTimes else { return page.map { ListedEntry(key: $0.key, data: $0.data) } }
    // What has been removed meanwhile is not there.
    return try await engine.readEntries(keys: page.map(\.key)).sorted { $0.key < $1.key }.map {
      ListedEntry(key: $0.key, data: $0.data, times: ($0.createdAt, $0.updatedAt))
    }
  }
}
