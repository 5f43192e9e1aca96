#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif
public import StockroomCore

// Reads take the lock only after repeated conflicts with writers. Reads of many entries wait for the disk on a dispatch queue,
// and not on a thread of the pool that all tasks share (rule C5).
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
    return try await readingMany(keys.count) { connection, attempt in
      try keys.validate()
      return try connection.entries(of: keys, attempt)
    }
  }

  /// Lists the directory, then reads every file. Costs O(N). Never shows half a batch.
  public func readAllData() async throws -> [Data] {
    try await readAllDataAndKeys().map(\.data)
  }

  /// Lists the directory, then reads every file. Costs O(N). Never shows half a batch.
  public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await readingMany(.max, retries: 1) { try $0.entries(of: $0.allKeys($1), $1) }
  }

  /// Lists the directory, reads every file with its metadata, and sorts. Costs O(N log N).
  public func readAllEntries() async throws -> [StorageEntry] {
    try await readingMany(.max, retries: 1) { try $0.wholeEntries(of: $0.allKeys($1), $1) }
  }

  /// Reads one file with its metadata for each key. Costs O(keys). Never shows half a batch.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try keys.validate()
    let keys = Array(Set(keys))
    return try await readingMany(keys.count) { try $0.wholeEntries(of: keys, $1) }
  }

  /// Reads the files that it returns, in the order of their keys. Costs O(log N) and one file for each entry that is
  /// returned.
  ///
  /// The first scan lists the directory and sorts its keys, in O(N log N), and so does the first one after another engine
  /// has written or another program has put files there. The keys are kept in memory from then on.
  public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try range.validate()
    let limit = max(0, limit ?? .max)
    return try await readingMany(.max, retries: 1) { try $0.entries(in: range, limit: limit, $1) }
  }

  /// Checks one file. Costs O(1) in N.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    try key.validate()
    let name = FileName(key)
    return try await reading { try $0.entries.status(of: name) != nil }
  }

  /// Checks one file for each key. Costs O(keys).
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    return try await readingMany(keys.count) { connection, attempt in
      try keys.validate()
      var existing: [CacheKey] = []
      try keys.forEach(during: attempt) { key in
        if try connection.entries.status(of: FileName(key)) != nil { existing.append(key) }
      }
      return existing
    }
  }

  /// Lists the directory. Costs O(N).
  public func keyCount() async throws -> Int {
    try await readingMany(.max, .everything) { connection, attempt in
      var count = 0
      try connection.forEachKey(during: attempt) { _ in count += 1 }
      return count
    }
  }

  /// Lists the directory. Costs O(N).
  public func allKeys() async throws -> [CacheKey] {
    try await readingMany(.max, retries: 1) { try $0.allKeys($1) }
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

  /// Reads every file and its metadata, and compares them. Costs O(N) and the reading of all values.
  ///
  /// There are no checksums: a value of the right length with other bytes is not detected.
  ///
  /// - Throws: `StorageError` with code `corrupted` if a file is shorter or longer than what was written, if
  ///   something that is not a file has the name of an entry, or if the contents of `.stockroom` are
  ///   corrupted.
  public func verify() async throws {
    try await readingMany(.max, retries: 1) { try $0.verify($1) }
  }
}

// MARK: - Many entries

extension DiskConnection {
  fileprivate func forEachKey(
    during attempt: ReadAttempt, _ body: (UnsafeRawBufferPointer) throws -> Void
  ) throws {
    var count = 0
    try entries.forEachKey { key in
      count += 1
      if count % 1000 == 0 { try attempt.check() }
      try body(key)
    }
  }

  fileprivate func allKeys(_ attempt: ReadAttempt) throws -> [CacheKey] {
    try listing(attempt) { _ in try listedKeys(attempt) }
  }

  private func listedKeys(_ attempt: ReadAttempt) throws -> [CacheKey] {
    var keys: [CacheKey] = []
    try forEachKey(during: attempt) { if let key = CacheKey(utf8: $0) { keys.append(key) } }
    return keys
  }

  /// All keys in byte order. Costs O(1) if they are known from another scan.
  fileprivate func sortedKeys(_ attempt: ReadAttempt) throws -> SortedKeys {
    try listing(attempt) { version in
      let state = try version.map { try KeyIndex.State(self, version: $0) }
      if let state, let known = index.keys(in: state) { return known }
      let mayKeep = attempt.hasLock || state?.isDistinct ?? false
      var keys = try listedKeys(attempt)
      try attempt.check()
      keys.sort()
      let sorted = SortedKeys(sorted: keys)
      if mayKeep, let state, try KeyIndex.State(self, version: state.version) == state {
        index.store(sorted, of: state)
      }
      return sorted
    }
  }

  /// The existing keys among these, with their values, in this order.
  fileprivate func entries(
    of keys: [CacheKey], _ attempt: ReadAttempt
  ) throws -> [(key: CacheKey, data: Data)] {
    var found: [(key: CacheKey, data: Data)] = []
    try keys.forEach(during: attempt) { key in
      if let data = try value(of: FileName(key)) { found.append((key, data)) }
    }
    return found
  }

  fileprivate func entries(
    in range: KeyRange, limit: Int, _ attempt: ReadAttempt
  ) throws -> [(key: CacheKey, data: Data)] {
    let sorted = try sortedKeys(attempt)
    var range = range
    var found: [(key: CacheKey, data: Data)] = []
    while found.count < limit {
      let wanted = limit - found.count
      let keys = sorted.keys(in: range, limit: wanted)
      found += try entries(of: keys, attempt)
      if keys.count < wanted { break }
      // A key that has been removed since the listing is not an error: the next keys replace it.
      range.after = keys.last
    }
    return found
  }

  fileprivate func wholeEntries(
    of keys: [CacheKey], _ attempt: ReadAttempt
  ) throws -> [StorageEntry] {
    var found: [StorageEntry] = []
    try keys.forEach(during: attempt) { key in
      guard let (data, header) = try valueAndHeader(of: FileName(key)) else { return }
      found.append(StorageEntry(key: key, data: data, header: header))
    }
    return found.sortedByCreation()
  }

  fileprivate func verify(_ attempt: ReadAttempt) throws {
    guard try state.validate() != nil else {
      throw StorageError.corruptedState(state.file.path, "it is empty, or has been truncated")
    }
    try entries.forEachKey({ _ in try attempt.check() }, other: { throw StorageError.notAFile($0) })
    try allKeys(attempt).forEach(during: attempt) { key in
      _ = try valueAndHeader(of: FileName(key))
    }
  }
}

extension [CacheKey] {
  /// Calls `body` with each key. Throws `CancellationError` once the task has been cancelled (rule C4).
  fileprivate func forEach(during attempt: ReadAttempt, _ body: (CacheKey) throws -> Void) throws {
    for (index, key) in enumerated() {
      if index % 1000 == 999 { try attempt.check() }
      try body(key)
    }
  }
}

// MARK: - Transactions

/// The reads of transactions: the files, while the engine holds the lock.
struct DiskEntryReader: EntryReader {
  let connection: DiskConnection

  private var sortedKeys: SortedKeys {
    get throws { try connection.sortedKeys(ReadAttempt(hasLock: true)) }
  }

  func data(of key: CacheKey) throws -> Data? { try connection.value(of: FileName(key)) }

  func contains(_ key: CacheKey) throws -> Bool { try connection.entries.status(of: FileName(key)) != nil }

  /// Lists the directory, unless the keys are known from another scan.
  func count() throws -> Int {
    var count = 0
    try sortedKeys.forEach(from: CacheKey(verbatim: "")) { _ in
      count += 1
      return true
    }
    return count
  }

  func forEachKey(from start: CacheKey, _ body: (CacheKey) throws -> Bool) throws {
    try sortedKeys.forEach(from: start, body)
  }
}
