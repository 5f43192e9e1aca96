import FaultyEngineWorker
import Foundation
import StockroomCore

/// An engine that alters requests or results.
struct AlteredEngine: FaultyEngine {
  typealias Entries = [(key: CacheKey, data: Data)]

  let base: ReferenceEngine
  /// Alters what to write. Nil stands for no write.
  var single: @Sendable (Data, CacheKey) throws -> (Data, CacheKey)? = { ($0, $1) }
  var batch: @Sendable (Entries) throws -> Entries = { $0 }
  var operations: @Sendable ([StorageOperation]) throws -> [StorageOperation] = { $0 }
  var removal: @Sendable ([CacheKey]) throws -> [CacheKey] = { $0 }
  var imported: @Sendable ([StorageEntry]) throws -> [StorageEntry] = { $0 }
  /// Alters requested keys.
  var request: @Sendable ([CacheKey]) throws -> [CacheKey] = { $0 }
  var question: @Sendable ([CacheKey]) throws -> [CacheKey] = { $0 }
  var limit: @Sendable (Int?) -> Int? = { $0 }
  /// Alters a value that was found.
  var value: @Sendable (CacheKey, Data?) throws -> Data? = { $1 }
  var requested: @Sendable (Entries) throws -> Entries = { $0 }
  var keys: @Sendable ([CacheKey]) -> [CacheKey] = { $0 }
  var count: @Sendable (Int) -> Int = { $0 }
  var values: @Sendable ([Data]) -> [Data] = { $0 }
  var pairs: @Sendable (Entries) -> Entries = { $0 }
  var entries: @Sendable ([StorageEntry]) -> [StorageEntry] = { $0 }
  var scanned: @Sendable (Entries) -> Entries = { $0 }

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    if let (data, key) = try single(data, key) { try await base.write(data, key: key) }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    try await base.write(batch(dataAndKeys))
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    try await write(imported(entries).map { (key: $0.key, data: $0.data) })
  }
  func apply(_ operations: [StorageOperation]) async throws {
    try await base.apply(self.operations(operations))
  }
  func remove(keys: [CacheKey]) async throws {
    try keys.validate()
    try await base.remove(keys: removal(keys))
  }
  func read(key: CacheKey) async throws -> Data? { try await value(key, base.read(key: key)) }
  func read(keys: [CacheKey]) async throws -> [Data] {
    try await requested(base.readDataAndKeys(keys: request(keys))).map(\.data)
  }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await requested(base.readDataAndKeys(keys: request(keys)))
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try keys.validate()
    return try await base.keysExist(question(keys))
  }
  func allKeys() async throws -> [CacheKey] { keys(try await base.allKeys()) }
  func keyCount() async throws -> Int { count(try await base.keyCount()) }
  func readAllData() async throws -> [Data] { values(try await base.readAllData()) }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    pairs(try await base.readAllDataAndKeys())
  }
  func readAllEntries() async throws -> [StorageEntry] { entries(try await base.readAllEntries()) }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    scanned(try await base.scan(range, limit: self.limit(limit)))
  }
}

/// An engine that performs an atomic call in parts of some size.
struct PartwiseEngine: FaultyEngine {
  /// The call that is performed in parts.
  enum Call { case write, apply, removal, removalOfEverything, replacement }

  let base: ReferenceEngine
  let size: Int
  let calls: Set<Call>
  /// Whether the keys of each part are only validated when the part is performed.
  var validatesParts = false
  /// Whether it stops between two parts if the task is cancelled.
  var isCancellable = false

  private func inParts<Element: Sendable>(
    _ call: Call, _ elements: [Element], _ validate: @Sendable ([Element]) throws -> Void,
    _ work: @escaping @Sendable ([Element]) async throws -> Void
  ) async throws {
    guard calls.contains(call), elements.count > size else { return try await work(elements) }
    if !validatesParts { try validate(elements) }
    let parts = stride(from: 0, to: elements.count, by: size).map {
      Array(elements[$0..<min($0 + size, elements.count)])
    }
    let all = { @Sendable [isCancellable] in
      for part in parts {
        if isCancellable { try Task.checkCancellation() }
        try await work(part)
        await Task.yield()
      }
    }
    if isCancellable { try await all() } else { try await Task { try await all() }.value }
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await inParts(.write, dataAndKeys, { for (key, _) in $0 { try key.validate() } }) { [base] in
      try await base.write($0)
    }
  }
  func apply(_ operations: [StorageOperation]) async throws {
    if calls.contains(.replacement), operations.first == .removeAll, operations.count > size {
      try operations.validate()
      return try await Task { [base] in
        try await base.removeAllData()
        await Task.yield()
        try await base.apply(Array(operations.dropFirst()))
      }.value
    }
    try await inParts(.apply, operations, { try $0.validate() }) { [base] in try await base.apply($0) }
  }
  func remove(keys: [CacheKey]) async throws {
    try await inParts(.removal, keys, { try $0.validate() }) { [base] in try await base.remove(keys: $0) }
  }
  func removeAllData() async throws {
    guard calls.contains(.removalOfEverything) else { return try await base.removeAllData() }
    try await inParts(.removalOfEverything, base.allKeys(), { _ in }) { [base] in
      try await base.remove(keys: $0)
    }
  }
}

/// An engine that reads some entries in parts, and concatenates the results.
struct ReadsEntriesInParts: FaultyEngine {
  let base: ReferenceEngine
  let size: Int
  /// Whether it validates all parts. Otherwise it treats invalid keys after the first part as absent.
  var validatesAll = true

  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    if validatesAll { try keys.validate() }
    var found: [StorageEntry] = []
    for start in stride(from: 0, to: keys.count, by: size) {
      let part = Array(keys[start..<min(start + size, keys.count)])
      let valid = part.filter { (1...511).contains($0.value.utf8.count) }
      found += try await base.readEntries(keys: start == 0 ? part : valid)
    }
    return found
  }
}

/// An engine that reads everything page by page, each page at a different time.
struct PagewiseEngine: FaultyEngine {
  enum Call { case allData, allPairs, allEntries, scan, allKeys }

  let base: ReferenceEngine
  var size = 500
  let call: Call

  private func pages(_ range: KeyRange = .all, limit: Int? = nil) async throws -> AlteredEngine.Entries {
    var (range, found): (KeyRange, AlteredEngine.Entries) = (range, [])
    while true {
      let page = try await base.scan(range, limit: min(size, (limit ?? .max) - found.count))
      found += page
      guard page.count == size, let last = page.last else { return found }
      range.after = last.key
      for _ in 0..<3 { await Task.yield() }
    }
  }

  func readAllData() async throws -> [Data] {
    call == .allData ? try await pages().map(\.data) : try await base.readAllData()
  }
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    call == .allPairs ? try await pages() : try await base.readAllDataAndKeys()
  }
  func allKeys() async throws -> [CacheKey] {
    call == .allKeys ? try await pages().map(\.key) : try await base.allKeys()
  }
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    call == .scan && limit ?? 1 > 0
      ? try await pages(range, limit: limit) : try await base.scan(range, limit: limit)
  }
  func readAllEntries() async throws -> [StorageEntry] {
    guard call == .allEntries else { return try await base.readAllEntries() }
    var found: [StorageEntry] = []
    while true {
      let page = try base.entries().dropFirst(found.count).prefix(size)
      found += page
      if page.count < size { return found }
      for _ in 0..<3 { await Task.yield() }
    }
  }
}

/// An engine that reads many keys in parts, each at a different time.
struct AsksForPartsOfRequests: FaultyEngine {
  enum Call { case readMany, readDataAndKeys, readEntries }

  let base: ReferenceEngine
  var size = 500
  let call: Call

  private func inParts<Element: Sendable>(
    _ keys: [CacheKey], _ read: ([CacheKey]) async throws -> [Element]
  ) async throws -> [Element] {
    try keys.validate()
    var found: [Element] = []
    for start in stride(from: 0, to: keys.count, by: size) {
      found += try await read(Array(keys[start..<min(start + size, keys.count)]))
      for _ in 0..<3 { await Task.yield() }
    }
    return found
  }

  func read(keys: [CacheKey]) async throws -> [Data] {
    guard call == .readMany else { return try await base.read(keys: keys) }
    return try await inParts(keys) { try await base.read(keys: $0) }
  }
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    guard call == .readDataAndKeys else { return try await base.readDataAndKeys(keys: keys) }
    return try await inParts(keys) { try await base.readDataAndKeys(keys: $0) }
  }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    guard call == .readEntries else { return try await base.readEntries(keys: keys) }
    return try await inParts(keys) { try await base.readEntries(keys: $0) }
  }
}
