import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The number of entries to read at a time: at most 128, and as many as take about 1 MiB together, but at least one.
struct PageSize: Sendable {
  private static let mostEntries = 128
  private static let mostBytes = 1 << 20

  /// Small at first, since the sizes of the values are not known yet.
  private(set) var count = 8

  /// Adjusts the size to the values of the last page. The size at most doubles, since large values may be next to each other.
  mutating func adjust(to page: [(key: CacheKey, data: Data)]) {
    let bytes = page.reduce(0) { $0 + $1.data.count }
    let fitting = bytes == 0 ? Self.mostEntries : Self.mostBytes * page.count / bytes
    count = max(1, min(fitting, 2 * count, Self.mostEntries))
  }
}

/// Reads all entries of an engine, a page at a time.
///
/// Each page is read by one call, so it is a snapshot if the engine has `snapshotReads`. A later page may include later changes. If
/// the engine has no ordered scans, or the cursor was created with keys, all keys are in memory.
struct EntryCursor: Sendable {
  /// The last key that a scan has returned, after which the next scan begins. Nil before the first scan.
  private var last: CacheKey?
  /// The keys that have not been read yet. Nil as long as pages are read by scans.
  private var rest: ArraySlice<CacheKey>?
  private var size = PageSize()
  /// Whether all entries have been read.
  private(set) var isAtEnd = false

  /// Creates a cursor that reads all entries of the engine.
  init() {}

  /// Creates a cursor that reads the entries of these keys, without scans: an engine such as a namespace may read all of its
  /// remaining entries for each page of a scan.
  init(keys: [CacheKey]) {
    rest = keys[...]
    isAtEnd = keys.isEmpty
  }

  /// The maximum number of entries in the next page.
  var pageSize: Int { size.count }

  /// Begins again at the first entry, and keeps the page size.
  mutating func restart() { (last, rest, isAtEnd) = (nil, nil, false) }

  /// Reads the next page. After an error, the next call reads the same page again.
  ///
  /// - Throws: `StorageError` with code `corrupted` if a scan returns no later keys than the one before; otherwise as the engine.
  mutating func next(of engine: some StorageEngine) async throws -> [(key: CacheKey, data: Data)] {
    guard rest == nil, engine.capabilities.contains(.orderedScans) else {
      let keys = try await upcomingKeys(of: engine)
      let page = try await engine.readDataAndKeys(keys: Array(keys.prefix(size.count)))
      skip(page, of: keys)
      return page
    }
    let page = try await engine.scan(KeyRange(after: last, upTo: nil), limit: size.count)
    if let last, let next = page.last?.key, next <= last {
      // Without this check, reading a corrupted place might never end.
      throw StorageError(.corrupted, "A scan after \(last) has returned \(next).")
    }
    last = page.last?.key ?? last
    isAtEnd = page.count < size.count
    size.adjust(to: page)
    return page
  }

  /// Like ``next(of:)``, but reads each entry by itself and skips those that the engine cannot read. From this call on, the keys
  /// that have not been read yet are in memory.
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
  /// Whether the error may concern a single entry, so that other entries can still be read: an entry that is corrupted, encrypted
  /// with an unknown key, or stored in a form that this program does not support.
  var isOfOneEntry: Bool { code == .corrupted || code == .permissionDenied || code == .unsupported }
}
