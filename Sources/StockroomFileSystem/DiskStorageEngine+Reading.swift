#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif
public import StockroomCore

// Reads take no lock, unless a batch is being applied just then.
extension DiskStorageEngine {
  /// Opens and reads one file. Costs O(1) in N.
  public func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    let name = FileName(key)
    return try await reading { try $0.value(of: name) }
  }

  /// Reads one file for each key. Costs O(keys). Never shows half a batch.
  public func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  /// Reads one file for each key. Costs O(keys). Never shows half a batch.
  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try keys.validate()
    return try await readingMany(keys.count) { try $0.entries(of: keys) }
  }

  /// Lists the directory, then reads every file. Costs O(N). Never shows half a batch.
  public func readAllData() async throws -> [Data] {
    try await readAllDataAndKeys().map(\.data)
  }

  /// Lists the directory, then reads every file. Costs O(N). Never shows half a batch.
  public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await readingMany(.max, retries: 1) { try $0.entries(of: $0.allKeys()) }
  }

  /// Lists the directory, reads every file with its metadata, and sorts. Costs O(N log N).
  public func readAllEntries() async throws -> [StorageEntry] {
    try await readingMany(.max, retries: 1) { try $0.allEntries() }
  }

  /// Lists the directory, sorts the keys in the range, then reads the files that it returns. Costs O(N) for the
  /// listing, O(R log R) for the R keys in the range, and one file for each entry that is returned.
  public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let limit = max(0, limit ?? .max)
    return try await readingMany(.max, retries: 1) { try $0.entries(in: range, limit: limit) }
  }

  /// Looks for one file. Costs O(1) in N.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    let name = FileName(key)
    return try await reading { try $0.entries.status(of: name) != nil }
  }

  /// Looks for one file for each key. Costs O(keys).
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try keys.validate()
    return try await readingMany(keys.count) { connection in
      var existing: [CacheKey] = []
      try keys.forEachChecked { key in
        if try connection.entries.status(of: FileName(key)) != nil { existing.append(key) }
      }
      return existing
    }
  }

  /// Lists the directory. Costs O(N).
  public func keyCount() async throws -> Int {
    try await readingMany(.max, .everything, retries: 1) { connection in
      var count = 0
      try connection.forEachKey { _ in count += 1 }
      return count
    }
  }

  /// Lists the directory. Costs O(N).
  public func allKeys() async throws -> [CacheKey] {
    try await readingMany(.max, retries: 1) { try $0.allKeys() }
  }

  /// When the entry was created, from its metadata. Costs O(1) in N.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    let name = FileName(key)
    return try await reading { try $0.metadata(of: name)?.header.createdAt.date }
  }

  /// When the entry was updated: when its file was modified. Costs O(1) in N.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    let name = FileName(key)
    return try await reading { try $0.metadata(of: name)?.header.updatedAt.date }
  }
}

// MARK: - Taking turns with writers

extension DiskStorageEngine {
  /// More keys than this are read away from the caller's actor.
  private static let mostKeysInline = 8

  private func readingMany<Result: Sendable>(
    _ count: Int, _ view: DiskConnection.View = .batches, retries: Int = 3,
    _ work: @escaping @Sendable (DiskConnection) throws -> Result
  ) async throws -> Result {
    guard count > Self.mostKeysInline else { return try await reading(view, retries: retries, work) }
    return try await readingElsewhere(view, retries, work)
  }

  @concurrent
  private func readingElsewhere<Result: Sendable>(
    _ view: DiskConnection.View, _ retries: Int, _ work: @escaping @Sendable (DiskConnection) throws -> Result
  ) async throws -> Result {
    try await reading(view, retries: retries, work)
  }

  /// Does the work here, or, if writers keep disturbing it, on the engine's thread, which may wait for them.
  private func reading<Result: Sendable>(
    _ view: DiskConnection.View = .batches, retries: Int = 3,
    _ work: @escaping @Sendable (DiskConnection) throws -> Result
  ) async throws -> Result {
    try gate.enter()
    defer { gate.leave() }
    for _ in 0..<retries {
      do {
        return try connection.withoutLock(view) { try work(connection) }
      } catch is DiskConnection.Disturbed {
        continue
      }
    }
    return try await thread.run { [connection] in try connection.withLock { try work(connection) } }
  }
}

// MARK: - Many entries

extension DiskConnection {
  fileprivate func forEachKey(_ body: (UnsafeRawBufferPointer) throws -> Void) throws {
    var count = 0
    try entries.forEachKey { key in
      count += 1
      if count % 1000 == 0 { try Task.checkCancellation() }
      try body(key)
    }
  }

  fileprivate func allKeys() throws -> [CacheKey] {
    try withoutLock(.everything) {
      var keys: [CacheKey] = []
      try forEachKey { if let key = CacheKey(utf8: $0) { keys.append(key) } }
      return keys
    }
  }

  /// The first keys of the range in byte order, without keeping many more than that while listing.
  private func firstKeys(in cursor: KeyRangeCursor, limit: Int) throws -> [CacheKey] {
    try withoutLock(.everything) {
      var keys: [CacheKey] = []
      var last: CacheKey?
      try forEachKey { bytes in
        guard cursor.position(of: bytes) == .inside, last?.isBefore(bytes) != true,
          let key = CacheKey(utf8: bytes)
        else { return }
        keys.append(key)
        if keys.count / 2 >= limit, keys.count >= 64 {
          keys.sort()
          keys.removeLast(keys.count - limit)
          last = keys.last
        }
      }
      keys.sort()
      return Array(keys.prefix(limit))
    }
  }

  /// Those of the keys that exist, with their values, in this order.
  fileprivate func entries(of keys: [CacheKey]) throws -> [(key: CacheKey, data: Data)] {
    var found: [(key: CacheKey, data: Data)] = []
    try keys.forEachChecked { key in
      if let data = try value(of: FileName(key)) { found.append((key, data)) }
    }
    return found
  }

  fileprivate func entries(in range: KeyRange, limit: Int) throws -> [(key: CacheKey, data: Data)] {
    var range = range
    var found: [(key: CacheKey, data: Data)] = []
    while found.count < limit {
      let wanted = limit - found.count
      let keys = try firstKeys(in: KeyRangeCursor(range), limit: wanted)
      found += try entries(of: keys)
      if keys.count < wanted { break }
      // Removed since it was listed is not an error: the keys that follow take the place.
      range.after = keys.last
    }
    return found
  }

  fileprivate func allEntries() throws -> [StorageEntry] {
    var found: [(sequence: UInt64, entry: StorageEntry)] = []
    try allKeys().forEachChecked { key in
      guard let (data, header) = try valueAndHeader(of: FileName(key)) else { return }
      let entry = StorageEntry(
        key: key, data: data, createdAt: header.createdAt.date, updatedAt: header.updatedAt.date)
      found.append((header.sequence, entry))
    }
    found.sort { ($0.sequence, $0.entry.key) < ($1.sequence, $1.entry.key) }
    return found.map(\.entry)
  }
}

extension [CacheKey] {
  /// Calls `body` with each key, and notices from time to time that the task has been cancelled (rule C4).
  fileprivate func forEachChecked(_ body: (CacheKey) throws -> Void) throws {
    for (index, key) in enumerated() {
      if index % 1000 == 999 { try Task.checkCancellation() }
      try body(key)
    }
  }
}

extension CacheKey {
  fileprivate func isBefore(_ bytes: UnsafeRawBufferPointer) -> Bool {
    withUTF8 { $0.compare(with: bytes) < 0 }
  }
}
