#if canImport(CryptoKit) || Encryption
  #if canImport(CryptoKit)
    import CryptoKit
  #else
    import Crypto
  #endif
  public import StockroomCore

  #if canImport(FoundationEssentials)
    public import FoundationEssentials
  #else
    public import Foundation
  #endif

  /// Stores each entry under a keyed hash of its key (HMAC-SHA-256), and the key itself in the value, which the engine below
  /// encrypts. ``StockroomCore/StorageEngine/encrypted(with:hidingKeysWith:)`` returns it.
  ///
  /// Without the encryption keys, the place reveals neither the keys of entries nor which of them are similar. The same key always
  /// has the same hash. A value that contains another key than the one of its hash is reported as `corrupted`.
  ///
  /// The engine below does not order entries by their keys, and its feed reports only the hash of a removed entry. So the layer
  /// does not have the capabilities `orderedScans` and `changeFeed`. A scan and ``allKeys()`` read every value, and hold all values
  /// in memory at once.
  public struct HiddenKeysEngine<Base: StorageEngine>: StorageLayer {
    /// The engine that keeps the entries under their hashes.
    public let base: Base
    private let names: HiddenNames

    init(base: Base, secret: EncryptionKey) {
      self.base = base
      names = HiddenNames(
        secret: secret.derived(for: "names of entries"), place: StockroomLayers.place(of: base))
    }

    /// The capabilities of ``base``, without `orderedScans` and `changeFeed`.
    public var capabilities: EngineCapabilities {
      base.capabilities.subtracting([.orderedScans, .changeFeed])
    }

    /// Writes the value together with the key, under the hash of the key.
    public func write(_ data: Data, key: CacheKey) async throws {
      try await base.write(NamedValue.combined(key, data), key: names.hidden(key))
    }

    /// Writes the values together with the keys, as one batch.
    @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
      try await base.write(
        mapping(dataAndKeys) { (try names.hidden($0.key), NamedValue.combined($0.key, $0.data)) })
    }

    /// Writes the entries together with the keys, as one batch.
    @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
      try await base.writeEntries(mapping(entries) { try names.hidden($0) })
    }

    /// Performs the operations as one batch.
    @concurrent public func apply(_ operations: [StorageOperation]) async throws {
      try await base.apply(
        mapping(operations) { operation in
          switch operation {
          case .write(let data, let key):
            .write(NamedValue.combined(key, data), key: try names.hidden(key))
          case .remove(let key): .remove(key: try names.hidden(key))
          case .removeAll: .removeAll
          }
        })
    }

    /// Reads one value.
    public func read(key: CacheKey) async throws -> Data? {
      try await base.read(key: names.hidden(key)).map { try names.value($0, of: key) }
    }

    /// Reads the values.
    @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
      try await readDataAndKeys(keys: keys).map(\.data)
    }

    /// Reads the values of the keys, and the key from each value.
    @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
      try await mapping(base.readDataAndKeys(keys: hidden(keys))) { try names.shown($0) }
    }

    /// Reads every value.
    @concurrent public func readAllData() async throws -> [Data] {
      try await readAllDataAndKeys().map(\.data)
    }

    /// Reads every value, and the key from each value.
    @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
      try await mapping(base.readAllDataAndKeys()) { try names.shown($0) }
    }

    /// Removes one entry.
    public func remove(key: CacheKey) async throws { try await base.remove(key: names.hidden(key)) }

    /// Removes the entries as one batch.
    @concurrent public func remove(keys: [CacheKey]) async throws {
      try await base.remove(keys: hidden(keys))
    }

    /// Checks whether the hash of the key exists in the engine below.
    public func keyExists(_ key: CacheKey) async throws -> Bool {
      try await base.keyExists(names.hidden(key))
    }

    /// Checks which hashes of the keys exist in the engine below.
    @concurrent public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
      let hidden = try await hidden(keys)
      let found = Set(try await base.keysExist(hidden))
      return zip(keys, hidden).lazy.filter { found.contains($1) }.map(\.0)
    }

    /// Reads every value. All values are in memory at once, so that the keys are those of one snapshot.
    @concurrent public func allKeys() async throws -> [CacheKey] { try await readAllDataAndKeys().map(\.key) }

    /// The timestamp of the entry in the engine below.
    public func createdAt(key: CacheKey) async throws -> Date? {
      try await base.createdAt(key: names.hidden(key))
    }

    /// The timestamp of the entry in the engine below.
    public func updatedAt(key: CacheKey) async throws -> Date? {
      try await base.updatedAt(key: names.hidden(key))
    }

    /// Reads every entry.
    @concurrent public func readAllEntries() async throws -> [StorageEntry] {
      try await mapping(base.readAllEntries()) { try names.shown($0) }
    }

    /// Reads the entries.
    @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
      try await mapping(base.readEntries(keys: hidden(keys))) { try names.shown($0) }
    }

    /// Reads every value, and returns the entries of the range.
    @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)]
    {
      try range.validate()
      return try await readAllDataAndKeys().inside(range, limit: limit)
    }

    /// Runs a transaction of the engine below. In it, `scan` and `allKeys` read every value.
    public func withTransaction<Result: Sendable>(
      _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
    ) async throws -> Result {
      try await base.withTransaction { [names] in try body(HiddenKeysTransaction(base: $0, names: names)) }
    }

    /// Throws `unsupported`, since the key of a removed entry cannot be found from its hash.
    public func changes() async throws -> StorageChanges {
      throw StorageError(
        .unsupported, "An engine that hides the keys of its entries has no change feed.")
    }

    /// Verifies ``base``, then compares the hash of every entry with the key in the value, a page of entries at a time. All hashes
    /// are in memory.
    @concurrent public func verify() async throws {
      try await base.verify()
      var cursor = EntryCursor(keys: try await base.allKeys())
      while !cursor.isAtEnd {
        for entry in try await cursor.next(of: base) { _ = try names.shown(entry) }
      }
    }

    @concurrent private func hidden(_ keys: [CacheKey]) async throws -> [CacheKey] {
      try await mapping(keys) { try names.hidden($0) }
    }
  }

  /// Converts entries to those of the engine below, and back.
  private struct HiddenNames: Sendable {
    /// An HMAC that has been initialized with the secret, and is copied for each key. Initializing it takes half of the time of a
    /// hash.
    private let begun: HMAC<SHA256>
    /// The description of the engine below, for error messages.
    private let place: String?

    init(secret: SymmetricKey, place: String?) {
      begun = HMAC(key: secret)
      self.place = place
    }

    /// The entry, from the stored one.
    ///
    /// - Throws: `StorageError` with code `corrupted` if it is stored under the hash of another key.
    func shown(_ stored: (key: CacheKey, data: Data)) throws -> (key: CacheKey, data: Data) {
      let entry = try NamedValue.separated(stored.data, in: place)
      guard try hidden(entry.key) == stored.key else { throw misplaced(entry.key) }
      return entry
    }

    /// The entry with its timestamps, from the stored one. Throws as the overload without timestamps.
    func shown(_ stored: StorageEntry) throws -> StorageEntry {
      var entry = stored
      (entry.key, entry.data) = try shown((key: stored.key, data: stored.data))
      return entry
    }

    /// The value of a key, from the stored value.
    ///
    /// - Throws: `StorageError` with code `corrupted` if the stored value contains another key.
    func value(_ stored: Data, of key: CacheKey) throws -> Data {
      let entry = try NamedValue.separated(stored, in: place)
      guard entry.key == key else { throw misplaced(entry.key) }
      return entry.data
    }

    private func misplaced(_ key: CacheKey) -> StorageError {
      StorageError(
        .corrupted,
        (place.map { "\($0): " } ?? "") + "The value of \(key) is stored under the hash of another key.")
    }

    /// The hash under which the entry is stored: 43 letters, digits, `-` and `_` (Base64URL).
    func hidden(_ key: CacheKey) throws -> CacheKey {
      try key.validate()
      var hash = begun
      hash.update(data: Data(key.value.utf8))
      let text = Data(hash.finalize()).base64EncodedString().utf8.dropLast().map { byte in
        switch byte {
        case UInt8(ascii: "+"): UInt8(ascii: "-")
        case UInt8(ascii: "/"): UInt8(ascii: "_")
        default: byte
        }
      }
      return CacheKey(verbatim: String(decoding: text, as: UTF8.self))
    }

    /// The entry in the form in which it is stored.
    func hidden(_ entry: StorageEntry) throws -> StorageEntry {
      StorageEntry(
        key: try hidden(entry.key), data: NamedValue.combined(entry.key, entry.data),
        createdAt: entry.createdAt, updatedAt: entry.updatedAt)
    }
  }

  /// A transaction of the engine below that converts between keys and hashes.
  private final class HiddenKeysTransaction: BulkReadingTransaction {
    private let base: any StorageTransaction
    private let names: HiddenNames

    init(base: any StorageTransaction, names: HiddenNames) { (self.base, self.names) = (base, names) }

    func read(key: CacheKey) throws -> Data? {
      try base.read(key: names.hidden(key)).map { try names.value($0, of: key) }
    }

    func read(keys: [CacheKey]) throws -> [Data] { try readValues(of: keys).compactMap(\.self) }

    func readValues(of keys: [CacheKey]) throws -> [Data?] {
      let hidden = try keys.map { try names.hidden($0) }
      return try zip(keys, base.values(of: hidden)).map { key, stored in
        try stored.map { try names.value($0, of: key) }
      }
    }

    func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(names.hidden(key)) }

    func keyCount() throws -> Int { try base.keyCount() }

    func allKeys() throws -> [CacheKey] { try scan(.all, limit: nil).map(\.key) }

    func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
      try range.validate()
      return try base.scan(.all, limit: nil).map { try names.shown($0) }.inside(range, limit: limit)
    }

    func write(_ data: Data, key: CacheKey) throws {
      try base.write(NamedValue.combined(key, data), key: names.hidden(key))
    }

    func writeEntry(_ entry: StorageEntry) throws { try base.writeEntry(names.hidden(entry)) }

    func remove(key: CacheKey) throws { try base.remove(key: names.hidden(key)) }

    func removeAll() throws { try base.removeAll() }
  }
#endif
