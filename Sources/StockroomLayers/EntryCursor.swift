import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How many entries to read at a time, so that those of a page take about a megabyte, unless one value has more.
struct PageSize: Sendable {
  private static let mostEntries = 128
  private static let mostBytes = 1 << 20

  /// Few at first, since nothing is known of the values yet.
  private(set) var count = 8

  /// Adjusts the size to what the last page had. It at most doubles: large values may be next to each other.
  mutating func adjust(to page: [(key: CacheKey, data: Data)]) {
    let bytes = page.reduce(0) { $0 + $1.data.count }
    let fitting = bytes == 0 ? Self.mostEntries : Self.mostBytes * page.count / bytes
    count = max(1, min(fitting, 2 * count, Self.mostEntries))
  }
}

/// Reads all entries of an engine, a page at a time.
///
/// Each page is a snapshot, and later pages are of later ones. Where the engine has no ordered scans, or the cursor has
/// been given the keys, all keys are in memory.
struct EntryCursor: Sendable {
  /// The last key that was read, where the engine has ordered scans.
  private var last: CacheKey?
  /// The keys that come next, where it has none, or they were given.
  private var rest: ArraySlice<CacheKey>?
  private var size = PageSize()
  /// Whether all entries have been read.
  private(set) var isAtEnd = false

  /// Reads what the engine lists itself.
  init() {}

  /// Reads the entries of these keys, which are all that the engine has. An engine such as a namespace may read its whole place for each
  /// page of a scan.
  init(keys: [CacheKey]) {
    rest = keys[...]
    isAtEnd = keys.isEmpty
  }

  /// The most entries that the next page has.
  var pageSize: Int { size.count }

  /// Goes back to the first entry, with pages as large as the last ones.
  mutating func restart() { (last, rest, isAtEnd) = (nil, nil, false) }

  /// The next entries. After an error the next call reads the same ones.
  mutating func next(of engine: some StorageEngine) async throws -> [(key: CacheKey, data: Data)] {
    guard rest == nil, engine.capabilities.contains(.orderedScans) else {
      let keys = try await upcomingKeys(of: engine)
      let page = try await engine.readDataAndKeys(keys: Array(keys.prefix(size.count)))
      skip(page, of: keys)
      return page
    }
    let page = try await engine.scan(KeyRange(after: last, upTo: nil), limit: size.count)
    if let last, let next = page.last?.key, next <= last {
      // Otherwise a corrupted place could be read for ever.
      throw StorageError(.corrupted, "A scan after \(last) has returned \(next).")
    }
    last = page.last?.key ?? last
    isAtEnd = page.count < size.count
    size.adjust(to: page)
    return page
  }

  /// As ``next(of:)``, without the entries that the engine cannot read: it reads each one by itself. From then on all keys are in memory.
  mutating func nextReadable(of engine: some StorageEngine) async throws -> [(key: CacheKey, data: Data)] {
    let keys = try await upcomingKeys(of: engine)
    var page: [(key: CacheKey, data: Data)] = []
    for key in keys.prefix(size.count) {
      do {
        if let data = try await engine.read(key: key) { page.append((key, data)) }
      } catch let error as StorageError where error.isOfOneEntry {
        continue
      }
    }
    skip(page, of: keys)
    return page
  }

  private func upcomingKeys(of engine: some StorageEngine) async throws -> ArraySlice<CacheKey> {
    if let rest { return rest }
    let keys = try await engine.allKeys()
    guard let last else { return keys[...] }
    return keys.filter { $0 > last }[...]
  }

  private mutating func skip(_ page: [(key: CacheKey, data: Data)], of keys: ArraySlice<CacheKey>) {
    let rest = keys.dropFirst(size.count)
    (self.rest, isAtEnd) = (rest, rest.isEmpty)
    size.adjust(to: page)
  }
}

extension StorageError {
  /// Whether it may be about one entry, so that others can be read: one that is corrupted, encrypted with a key that is not known, or
  /// stored in a form that this program does not support.
  var isOfOneEntry: Bool { code == .corrupted || code == .permissionDenied || code == .unsupported }
}
