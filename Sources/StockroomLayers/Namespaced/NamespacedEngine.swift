public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// A named part of a place. ``StockroomCore/StorageEngine/namespaced(_:)`` returns it.
///
/// Every namespace is an engine: it sees, removes and reports only its own entries. All namespaces share one place, so a batch or a
/// transaction can change several of them:
///
/// ```swift
/// try await place.apply(notes.operations([.write(note, key: id)]) + tags.operations([.remove(key: tag)]))
/// ```
///
/// `close()` closes the engine that all of them share, and with it every other namespace.
///
/// Each key takes one byte more than the length of the name. Keys of all lengths are allowed. For a key that is longer than 510
/// bytes less the name and the slash, so 477 to 508 bytes, the place stores a part of the key and its MD5 digest as the key, and
/// the full key in the value. An attacker who constructs two such keys with the same beginning and the same digest gets one entry
/// for both.
///
/// Costs in addition to those of the engine below: ``readAllEntries()``, ``allKeys()``, ``keyCount()`` and ``verify()`` visit the
/// whole place, including all other namespaces, and so does every read of all values unless the engine below has `orderedScans`.
/// ``removeAllData()`` is a transaction that lists the keys of the whole place. A page of a scan reads at least the whole range if
/// a key or a bound in it has more than about 440 bytes.
public struct NamespacedEngine<Base: StorageEngine>: StorageLayer {
  /// The maximum length of a name in bytes of UTF-8.
  public static var maximumNameLength: Int { NamespacedKeys.maximumNameLength }

  /// The engine that all namespaces share.
  public let base: Base
  private let keys: NamespacedKeys

  init(base: Base, name: String) throws {
    guard base.capabilities.contains(.transactions) else {
      throw StorageError(.unsupported, "Namespaces need transactions, which a \(Base.self) does not have.")
    }
    self.base = base
    keys = try NamespacedKeys(name: name, place: StockroomLayers.place(of: base))
  }

  // MARK: Several namespaces

  /// Converts the operations to those of the shared engine, for a batch that changes several namespaces.
  ///
  /// - Throws: `StorageError` with code `invalidKey` for an invalid key, `unsupported` for `removeAll`, which needs a transaction.
  public func operations(_ operations: [StorageOperation]) throws -> [StorageOperation] {
    try operations.map(keys.stored)
  }

  /// Restricts a transaction of the shared engine to this namespace.
  public func transaction(in transaction: any StorageTransaction) -> any StorageTransaction {
    NamespacedTransaction(base: transaction, keys: keys)
  }

  // MARK: Requirements

  /// Writes the value in this namespace. Costs and throws as the engine below.
  public func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(keys.stored(data, key), key: keys.stored(key))
  }

  /// Writes the values in this namespace, as one batch. Costs and throws as the engine below.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(mapping(dataAndKeys) { (try keys.stored($0.key), keys.stored($0.data, $0.key)) })
  }

  /// Writes the entries in this namespace, as one batch. Costs and throws as the engine below.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(mapping(entries) { try keys.stored($0) })
  }

  /// Performs the operations in this namespace as one batch. If `removeAll` is among them, the batch is a transaction.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    guard operations.contains(.removeAll) else {
      return try await base.apply(mapping(operations) { try keys.stored($0) })
    }
    try operations.validate()
    try await withTransaction { try $0.apply(operations) }
  }

  /// Reads the value in this namespace. Costs and throws as the engine below.
  public func read(key: CacheKey) async throws -> Data? {
    let stored = try await base.read(key: keys.stored(key))
    guard let stored, keys.isCut(key) else { return stored }
    return try keys.value(stored, of: key)
  }

  /// Reads the values in this namespace. Costs and throws as the engine below.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  /// Reads the entries in this namespace. Costs and throws as the engine below.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await entries(base.readDataAndKeys(keys: stored(keys)))
  }

  /// Reads all values in this namespace.
  @concurrent public func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  /// Reads all entries in this namespace.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    if capabilities.contains(.orderedScans) {
      return try await entries(base.scan(.prefix(keys.prefix), limit: nil))
    }
    return try await entries(
      readingOwn({ try await base.readAllDataAndKeys() }, ownValues))
  }

  /// Removes the entry in this namespace. Costs and throws as the engine below.
  public func remove(key: CacheKey) async throws { try await base.remove(key: keys.stored(key)) }

  /// Removes the entries in this namespace, as one batch. Costs and throws as the engine below.
  @concurrent public func remove(keys: [CacheKey]) async throws { try await base.remove(keys: stored(keys)) }

  /// Removes all entries in this namespace, in one transaction.
  public func removeAllData() async throws { try await withTransaction { try $0.removeAll() } }

  /// Whether the key exists in this namespace.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await base.keyExists(keys.stored(key)) }

  /// The requested keys that exist in this namespace.
  @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    let stored = try await stored(keys)
    let found = Set(try await base.keysExist(stored))
    return zip(keys, stored).lazy.filter { found.contains($1) }.map(\.0)
  }

  /// Counts the entries in this namespace. O(N) for the N entries of the whole place, whose keys are listed.
  @concurrent public func keyCount() async throws -> Int {
    try await base.allKeys().count(where: keys.contains)
  }

  /// Verifies ``base``, then checks that each value which contains its key is stored under that key. All keys are in memory.
  @concurrent public func verify() async throws {
    try await base.verify()
    let cut = try await base.allKeys().filter { keys.contains(below: $0) && keys.key(below: $0) == nil }
    var cursor = EntryCursor(keys: cut)
    while !cursor.isAtEnd {
      for stored in try await cursor.next(of: base) {
        guard let entry = try keys.entry(stored), try keys.stored(entry.key) != stored.key else { continue }
        try naming(keys.place) {
          throw StorageError(
            .corrupted, "The value that is stored under \(stored.key) is that of \(entry.key).")
        }
      }
    }
  }

  /// Lists the keys in this namespace. O(N) for the N entries of the whole place, whose keys are listed. If a key is too long to be
  /// stored whole, all values in this namespace are read as well.
  @concurrent public func allKeys() async throws -> [CacheKey] {
    let own = try await mapping(base.allKeys().filter(keys.contains)) { keys.key(below: $0) }
    // Rarely, some keys are only in their values.
    return own.contains(nil) ? try await readAllDataAndKeys().map(\.key) : own.compactMap(\.self)
  }

  /// The timestamp of the entry in this namespace.
  public func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: keys.stored(key))
  }

  /// The timestamp of the entry in this namespace.
  public func updatedAt(key: CacheKey) async throws -> Date? {
    try await base.updatedAt(key: keys.stored(key))
  }

  /// Reads all entries in this namespace.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    let found = try await readingOwn(
      { try await base.readAllEntries() }, ownEntries)
    return try await mapping(found) { try keys.entry($0) }.compactMap(\.self)
  }

  /// Reads the entries in this namespace. Costs and throws as the engine below.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await mapping(base.readEntries(keys: stored(keys))) { try self.keys.entry($0) }.compactMap(\.self)
  }

  /// Reads the entries of a range in this namespace.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    let scan = try keys.scan(range)
    if scan.isExact, let page = try await scan.page(base.scan(scan.below, limit: limit)) { return page }
    return try await scan.page(ofAll: base.scan(scan.below, limit: nil), limit: limit)
  }

  /// Runs a transaction of the engine below, in which the body reads and writes this namespace only.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { try body(transaction(in: $0)) }
  }

  /// The changes in this namespace. An element is `everything` if it includes a key that is too long to be stored whole, or if more
  /// keys have changed in the whole place than the stream buffers for a slow subscriber.
  public func changes() async throws -> StorageChanges {
    try await base.changes().mapping { [keys] in keys.change($0) }
  }

  @concurrent private func stored(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await mapping(keys) { try self.keys.stored($0) }
  }

  /// Reads the whole place with `readAll`. If an entry in it is corrupted, encrypted with an unknown key or stored in an unknown
  /// form, reads this namespace only, with `readOwn`: an entry of another namespace must not make this one unreadable.
  @concurrent private func readingOwn<Element: Sendable>(
    _ readAll: () async throws -> [Element], _ readOwn: () async throws -> [Element]
  ) async throws -> [Element] {
    do {
      return try await readAll()
    } catch let error as StorageError where error.isOfOneEntry {
      return try await readOwn()
    }
  }

  /// A snapshot of the stored values of this namespace.
  @concurrent private func ownValues() async throws -> [(key: CacheKey, data: Data)] {
    try await base.withTransaction { [keys] transaction -> [(key: CacheKey, data: Data)] in
      let own = try transaction.allKeys().filter(keys.contains)
      return try zip(own, transaction.values(of: own)).compactMap { key, data in data.map { (key, $0) } }
    }
  }

  /// A snapshot of the stored entries of this namespace, with their timestamps.
  @concurrent private func ownEntries() async throws -> [StorageEntry] {
    var stored = try await base.allKeys().filter(keys.contains)
    for _ in 0..<4 {
      let found = try await base.readEntries(keys: stored)
      stored = try await base.allKeys().filter(keys.contains)
      // Entries that are the same before and after the keys were listed were the same when they were listed.
      if Set(found.map(\.key)) == Set(stored), try await base.readEntries(keys: stored) == found {
        return found
      }
    }
    // Other callers keep writing. A transaction does not return timestamps, so they are read after it. The timestamp of an entry
    // that has been written since is limited to the time of the transaction.
    let values = try await ownValues()
    let date = Timestamp.now().date
    let later = try await base.readEntries(keys: values.map(\.key))
    let times = Dictionary(later.map { ($0.key, $0) }) { $1 }
    let places = Dictionary(later.enumerated().map { ($1.key, $0) }) { $1 }
    return values.map { key, data -> StorageEntry in
      var entry = times[key] ?? StorageEntry(key: key, data: data, createdAt: date, updatedAt: date)
      // The entry may have been written since, even with the same value.
      entry.data = data
      entry.createdAt = min(entry.createdAt, date)
      entry.updatedAt = min(entry.updatedAt, date)
      return entry
    }.sorted { places[$0.key] ?? .max < places[$1.key] ?? .max }
  }

  @concurrent private func entries(
    _ stored: [(key: CacheKey, data: Data)]
  ) async throws -> [(key: CacheKey, data: Data)] {
    try await mapping(stored) { try keys.entry($0) }.compactMap(\.self)
  }
}

extension StorageEngine {
  /// A named part of this engine's place. See ``NamespacedEngine``.
  ///
  /// - Parameter name: 1 to ``NamespacedEngine/maximumNameLength`` bytes of UTF-8 without a slash. A short name saves space, since
  ///   every entry contains it.
  /// - Throws: `StorageError` with code `invalidKey` for an invalid name, `unsupported` if the engine has no transactions.
  public func namespaced(_ name: String) throws -> NamespacedEngine<Self> {
    try NamespacedEngine(base: self, name: name)
  }
}

/// A transaction of the shared engine, restricted to one namespace.
private final class NamespacedTransaction: BulkReadingTransaction {
  private let base: any StorageTransaction
  private let keys: NamespacedKeys

  init(base: any StorageTransaction, keys: NamespacedKeys) { (self.base, self.keys) = (base, keys) }

  func read(key: CacheKey) throws -> Data? {
    try base.read(key: keys.stored(key)).map { try keys.value($0, of: key) }
  }

  func read(keys: [CacheKey]) throws -> [Data] { try readValues(of: keys).compactMap(\.self) }

  func readValues(of keys: [CacheKey]) throws -> [Data?] {
    let stored = try keys.map { try self.keys.stored($0) }
    return try zip(keys, base.values(of: stored)).map { key, value in
      try value.map { try self.keys.value($0, of: key) }
    }
  }

  func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(keys.stored(key)) }

  func keyCount() throws -> Int { try base.allKeys().count(where: keys.contains) }

  func allKeys() throws -> [CacheKey] {
    let own = try base.allKeys().filter(keys.contains).map(keys.key)
    return own.contains(nil) ? try scan(.all, limit: nil).map(\.key) : own.compactMap(\.self)
  }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    let scan = try keys.scan(range)
    if scan.isExact, let page = try scan.page(base.scan(scan.below, limit: limit)) { return page }
    return try scan.page(ofAll: base.scan(scan.below, limit: nil), limit: limit)
  }

  func write(_ data: Data, key: CacheKey) throws {
    try base.write(keys.stored(data, key), key: keys.stored(key))
  }

  func writeEntry(_ entry: StorageEntry) throws { try base.writeEntry(keys.stored(entry)) }

  func remove(key: CacheKey) throws { try base.remove(key: keys.stored(key)) }

  func removeAll() throws {
    // Reads no values, since some of them may be corrupted (rule D2).
    for key in try base.allKeys() where keys.contains(below: key) { try base.remove(key: key) }
  }
}
