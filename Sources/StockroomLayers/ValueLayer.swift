import Dispatch
public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// A layer that stores every value in another form, such as compressed.
///
/// A conforming type implements ``encode(_:key:)`` and ``decode(_:key:)``. With these two, this protocol implements every
/// requirement of `StorageEngine` that takes or returns values, including transactions and ``StorageEngine/verify()``. Keys, order,
/// timestamps, batches, snapshots and the change feed are those of the engine below.
public protocol ValueLayer: StorageLayer {
  /// Converts a value to the form in which it is stored.
  ///
  /// - Throws: `StorageError` with code `valueTooLarge`, or with another code that a write may throw. Nothing is written then.
  func encode(_ value: Data, key: CacheKey) throws -> Data

  /// Decodes a stored value. The returned data must start at index 0 (rule V3).
  ///
  /// - Throws: `StorageError` with code `corrupted` if the bytes are not an encoded value.
  func decode(_ stored: Data, key: CacheKey) throws -> Data

  /// The approximate number of bytes that ``decode(_:key:)`` returns for the stored value. It determines on which thread the value
  /// is decoded. Default: the number of stored bytes.
  func decodedCount(of stored: Data) -> Int
}

extension ValueLayer {
  /// The number of stored bytes.
  public func decodedCount(of stored: Data) -> Int { stored.count }

  /// Encodes the value and writes it to ``base``.
  public func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    try await base.write(encoded(data, key), key: key)
  }

  /// Encodes the values and writes them to ``base`` as one batch.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    for (key, _) in dataAndKeys { try key.validate() }
    try await base.write(mapping(dataAndKeys) { ($0.key, try await encoded($0.data, $0.key)) })
  }

  /// Encodes the values and writes the entries to ``base`` as one batch.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    for entry in entries { try entry.key.validate() }
    try await base.writeEntries(
      mapping(entries) { entry in
        var stored = entry
        stored.data = try await encoded(entry.data, entry.key)
        return stored
      })
  }

  /// Encodes the values and applies the operations to ``base`` as one batch.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try operations.validate()
    try await base.apply(
      mapping(operations) { operation in
        guard case .write(let data, let key) = operation else { return operation }
        return .write(try await encoded(data, key), key: key)
      })
  }

  /// Reads and decodes one value.
  public func read(key: CacheKey) async throws -> Data? {
    guard let stored = try await base.read(key: key) else { return nil }
    // An asynchronous call costs as much as decoding some hundred bytes, which is noticeable in front of a fast engine. So a short
    // value is decoded without one.
    return isShort(stored) ? try decoding(stored, key) : try await decoded(stored, key)
  }

  /// Reads and decodes the values.
  @concurrent public func read(keys: [CacheKey]) async throws -> [Data] {
    try await readDataAndKeys(keys: keys).map(\.data)
  }

  /// Reads and decodes the values.
  @concurrent public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await decoded(base.readDataAndKeys(keys: keys))
  }

  /// Reads and decodes every value.
  @concurrent public func readAllData() async throws -> [Data] { try await readAllDataAndKeys().map(\.data) }

  /// Reads and decodes every value.
  @concurrent public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await decoded(base.readAllDataAndKeys())
  }

  /// Reads and decodes every value.
  @concurrent public func readAllEntries() async throws -> [StorageEntry] {
    try await decoded(base.readAllEntries())
  }

  /// Reads and decodes the values.
  @concurrent public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await decoded(base.readEntries(keys: keys))
  }

  /// Reads and decodes the values of a range.
  @concurrent public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await decoded(base.scan(range, limit: limit))
  }

  /// Runs a transaction of the engine below. Its values are encoded and decoded on the thread of the body.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { try body(ValueTransaction(base: $0, layer: self)) }
  }

  /// Verifies ``base``, then decodes every value, a page of entries at a time. All keys are in memory.
  @concurrent public func verify() async throws {
    try await base.verify()
    var cursor = EntryCursor(keys: try await allKeys())
    while !cursor.isAtEnd { _ = try await cursor.next(of: self) }
  }
}

// MARK: - Long work

/// The maximum size in bytes of a value that is encoded or decoded on the thread of the call. A larger value is processed on
/// another thread, so that it holds up neither the caller's actor nor a thread of the cooperative pool (rule C5).
private let longestValueInPlace = 128 << 10

extension ValueLayer {
  private func encoded(_ value: Data, _ key: CacheKey) async throws -> Data {
    if value.count <= longestValueInPlace { return try encode(value, key: key) }
    return try await onAnotherThread { try encode(value, key: key) }
  }

  fileprivate func decoding(_ stored: Data, _ key: CacheKey) throws -> Data {
    try naming(place) { try decode(stored, key: key) }
  }

  private func isShort(_ stored: Data) -> Bool { decodedCount(of: stored) <= longestValueInPlace }

  private func decoded(_ stored: Data, _ key: CacheKey) async throws -> Data {
    if isShort(stored) { return try decoding(stored, key) }
    return try await onAnotherThread { try decoding(stored, key) }
  }

  private func decoded(_ stored: [(key: CacheKey, data: Data)]) async throws -> [(key: CacheKey, data: Data)]
  {
    try await mapping(stored) { ($0.key, try await decoded($0.data, $0.key)) }
  }

  private func decoded(_ stored: [StorageEntry]) async throws -> [StorageEntry] {
    try await mapping(stored) {
      var entry = $0
      entry.data = try await decoded(entry.data, entry.key)
      return entry
    }
  }

  private func onAnotherThread(_ work: @escaping @Sendable () throws -> Data) async throws -> Data {
    try await ThreadResult.wait { finish in
      DispatchQueue.global().async { finish(Result { try work() }) }
    }
  }
}

/// A transaction of the engine below that encodes and decodes values with the layer.
private final class ValueTransaction<Layer: ValueLayer>: BulkReadingTransaction {
  private let base: any StorageTransaction
  private let layer: Layer

  init(base: any StorageTransaction, layer: Layer) { (self.base, self.layer) = (base, layer) }

  func read(key: CacheKey) throws -> Data? { try base.read(key: key).map { try layer.decoding($0, key) } }

  func read(keys: [CacheKey]) throws -> [Data] { try readValues(of: keys).compactMap(\.self) }

  func readValues(of keys: [CacheKey]) throws -> [Data?] {
    try zip(keys, base.values(of: keys)).map { key, stored in
      try stored.map { try layer.decoding($0, key) }
    }
  }

  func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(key) }

  func keyCount() throws -> Int { try base.keyCount() }

  func allKeys() throws -> [CacheKey] { try base.allKeys() }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    try base.scan(range, limit: limit).map { ($0.key, try layer.decoding($0.data, $0.key)) }
  }

  func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    try base.write(layer.encode(data, key: key), key: key)
  }

  func writeEntry(_ entry: StorageEntry) throws {
    try entry.key.validate()
    var stored = entry
    stored.data = try layer.encode(entry.data, key: entry.key)
    try base.writeEntry(stored)
  }

  func remove(key: CacheKey) throws { try base.remove(key: key) }

  func removeAll() throws { try base.removeAll() }
}
