public import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// An engine in front of an engine.
///
/// Whatever a layer does not change goes on to ``base``: each requirement of `StorageEngine` is forwarded here, so that none falls back
/// to a default that takes a batch apart, or has no snapshot, transactions or feed. To write a layer, name the base and replace what
/// the layer is there for; what changes nothing but values is a ``ValueLayer``.
///
/// A layer is as good as the whole contract, which the conformance kit verifies in front of any engine:
///
/// ```swift
/// ConformanceSuite("Mine", capabilities: [.persistent, .atomicBatches]) { try MyLayer(base: MyEngine(directory: $0)) }
/// ```
public protocol StorageLayer: StorageEngine {
  /// The engine below.
  associatedtype Base: StorageEngine
  /// The engine below. The layer owns the place: what others write there without the layer is not its own.
  var base: Base { get }
}

extension StorageLayer {
  /// Those of the engine below.
  public var capabilities: EngineCapabilities { base.capabilities }

  /// Done by the engine below.
  public func write(_ data: Data, key: CacheKey) async throws { try await base.write(data, key: key) }

  /// Done by the engine below.
  public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
  }

  /// Done by the engine below.
  public func read(key: CacheKey) async throws -> Data? { try await base.read(key: key) }

  /// Done by the engine below.
  public func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: keys) }

  /// Done by the engine below.
  public func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    try await base.readDataAndKeys(keys: keys)
  }

  /// Done by the engine below.
  public func readAllData() async throws -> [Data] { try await base.readAllData() }

  /// Done by the engine below.
  public func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    try await base.readAllDataAndKeys()
  }

  /// Done by the engine below.
  public func remove(key: CacheKey) async throws { try await base.remove(key: key) }

  /// Done by the engine below.
  public func remove(keys: [CacheKey]) async throws { try await base.remove(keys: keys) }

  /// Done by the engine below.
  public func removeAllData() async throws { try await base.removeAllData() }

  /// Done by the engine below.
  public func keyExists(_ key: CacheKey) async throws -> Bool { try await base.keyExists(key) }

  /// Done by the engine below.
  public func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] { try await base.keysExist(keys) }

  /// Done by the engine below.
  public func keyCount() async throws -> Int { try await base.keyCount() }

  /// Done by the engine below.
  public func allKeys() async throws -> [CacheKey] { try await base.allKeys() }

  /// Done by the engine below.
  public func createdAt(key: CacheKey) async throws -> Date? { try await base.createdAt(key: key) }

  /// Done by the engine below.
  public func updatedAt(key: CacheKey) async throws -> Date? { try await base.updatedAt(key: key) }

  /// Done by the engine below.
  public func readAllEntries() async throws -> [StorageEntry] { try await base.readAllEntries() }

  /// Done by the engine below.
  public func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys)
  }

  /// Done by the engine below.
  public func writeEntries(_ entries: [StorageEntry]) async throws { try await base.writeEntries(entries) }

  /// Done by the engine below.
  public func apply(_ operations: [StorageOperation]) async throws { try await base.apply(operations) }

  /// Done by the engine below.
  public func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    try await base.scan(range, limit: limit)
  }

  /// Done by the engine below.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction(body)
  }

  /// Those of the engine below.
  public func changes() async throws -> StorageChanges { try await base.changes() }

  /// Done by the engine below.
  public func verify() async throws { try await base.verify() }

  /// Closes the engine below.
  public func close() async throws { try await base.close() }
}

// MARK: - Errors

extension StorageLayer {
  /// The engine that is below all layers, as it describes itself.
  var place: String? { StockroomLayers.place(of: base) }
}

/// The engine, or what is below all layers if it is one, as it describes itself.
func place(of engine: some StorageEngine) -> String? {
  (engine as? any StorageLayer)?.place ?? (engine as? any CustomStringConvertible)?.description
}

/// A layer whose entries go away by themselves.
protocol ExpiringLayer {}

/// Whether the engine, or one below, is a layer whose entries go away by themselves. What is below an engine that is no layer is not known.
func expires(_ engine: some StorageEngine) -> Bool {
  if engine is any ExpiringLayer { return true }
  guard let layer = engine as? any StorageLayer else { return false }
  return expires(layer.base)
}

/// Calls `body`, and adds to what it finds corrupted in which place that is.
func naming<Result>(_ place: @autoclosure () -> String?, _ body: () throws -> Result) throws -> Result {
  do {
    return try body()
  } catch var error as StorageError where error.code == .corrupted {
    if let place = place() { error.message = "\(place): \(error.message)" }
    throw error
  }
}
