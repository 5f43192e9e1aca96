public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// An engine that wraps another one, the engine below.
///
/// Each requirement of `StorageEngine` is forwarded to ``base`` here, so that no requirement falls back to its default
/// implementation, which may perform a batch one by one, read without a snapshot, or support neither transactions nor the feed. To
/// write a layer, declare `base` and implement the methods that the layer changes. If it changes only values, conform to
/// ``ValueLayer``.
///
/// A layer must follow the whole contract. The conformance kit verifies that it does, in front of any engine:
///
/// ```swift
/// ConformanceSuite("Mine", capabilities: [.persistent, .atomicBatches]) { try MyLayer(base: MyEngine(directory: $0)) }
/// ```
public protocol StorageLayer: StorageEngine {
  /// The type of the engine below.
  associatedtype Base: StorageEngine
  /// The engine below. Every entry in its place must be written through the layer.
  var base: Base { get }
}

extension StorageLayer {
  /// The capabilities of ``base``.
  public var capabilities: EngineCapabilities { base.capabilities }

  /// Forwards to ``base``.
  public func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: key) }

  /// Forwards to ``base``.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
  }

  /// Forwards to ``base``.
  public func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }

  /// Forwards to ``base``.
  public func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: keys) }

  /// Forwards to ``base``.
  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await base.readDataAndKeys(keys: keys)
  }

  /// Forwards to ``base``.
  public func readAllData() async throws -> [Data] { try await base.readAllData() }

  /// Forwards to ``base``.
  public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await base.readAllDataAndKeys()
  }

  /// Forwards to ``base``.
  public func remove(key: CacheKey) async throws { try await base.remove(key: key) }

  /// Forwards to ``base``.
  public func remove(keys: [CacheKey]) async throws { try await base.remove(keys: keys) }

  /// Forwards to ``base``.
  public func removeAllData() async throws { try await base.removeAllData() }

  /// Forwards to ``base``.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await base.keyExists(key) }

  /// Forwards to ``base``.
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] { try await base.keysExist(keys) }

  /// Forwards to ``base``.
  public func keyCount() async throws -> Int { try await base.keyCount() }

  /// Forwards to ``base``.
  public func allKeys() async throws -> [CacheKey] { try await base.allKeys() }

  /// Forwards to ``base``.
  public func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }

  /// Forwards to ``base``.
  public func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }

  /// Forwards to ``base``.
  public func readAllEntries() async throws -> [StorageEntry] { try await base.readAllEntries() }

  /// Forwards to ``base``.
  public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys)
  }

  /// Forwards to ``base``.
  public func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }

  /// Forwards to ``base``.
  public func apply(_ operations: [StorageOperation]) async throws { try await base.apply(operations) }

  /// Forwards to ``base``.
  public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await base.scan(range, limit: limit)
  }

  /// Forwards to ``base``.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction(body)
  }

  /// The feed of ``base``.
  public func changes() async throws -> StorageChanges { try await base.changes() }

  /// Forwards to ``base``.
  public func verify() async throws { try await base.verify() }

  /// Closes ``base``.
  public func close() async throws { try await base.close() }
}

// MARK: - Errors

extension StorageLayer {
  /// The description of the engine below all layers, for error messages. Nil if it has none.
  var place: String? { StockroomLayers.place(of: base) }
}

/// The description of the engine or, if it is a layer, of the engine below all layers. Nil if that has none.
func place(of engine: some StorageEngine) -> String? {
  (engine as? any StorageLayer)?.place ?? (engine as? any CustomStringConvertible)?.description
}

/// A layer whose entries expire.
protocol ExpiringLayer {}

/// Whether the engine, or a layer below it, is an ``ExpiringLayer``. The search ends at the first engine that is not a layer.
func expires(_ engine: some StorageEngine) -> Bool {
  if engine is any ExpiringLayer { return true }
  guard let layer = engine as? any StorageLayer else { return false }
  return expires(layer.base)
}

/// Calls `body`. Prefixes the message of a `corrupted` error with the place.
func naming<Result>(_ place: @autoclosure () -> String?, _ body: () throws -> Result) throws -> Result {
  do {
    return try body()
  } catch var error as StorageError where error.code == .corrupted {
    if let place = place() { error.message = "\(place): \(error.message)" }
    throw error
  }
}
