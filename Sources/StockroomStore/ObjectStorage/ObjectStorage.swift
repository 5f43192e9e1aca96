import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Stores objects of one type under keys, in any engine.
///
/// ```swift
/// let engine = try SQLiteStorageEngine(directory: .documents(appendingPath: "Notes"))
/// let notes = ObjectStorage<Note>(storage: engine)
/// try await notes.store(note, forKey: CacheKey("welcome"))
/// let welcome = try await notes.object(forKey: CacheKey("welcome"))
/// ```
///
/// Nothing is cached: each call is one request to the engine, and the engine's guarantees apply to objects
/// too. Objects are encoded and decoded off the caller's actor, several of them in parallel.
///
/// All methods throw the errors of the engine, as `StorageError`, for invalid keys and for every fault (rules K1, R4 and F1
/// to F3): nil and empty arrays only mean that nothing is stored. A cancelled call either does all of its work or throws
/// `CancellationError` (rule C4).
///
/// An engine may hold objects of several types under different keys. Reading an object as a type other than
/// the one it was stored as usually throws, depending on the codec.
public struct ObjectStorage<Object: StorableItem>: Sendable {
  let storage: any StorageEngine
  let codec: ItemCodec<Object>
  private let versions = VersionLog()

  /// Creates a storage of objects in an engine, encoded by a codec.
  public init(storage: some StorageEngine, codec: some Codec = .json) {
    self.storage = storage
    self.codec = ItemCodec(codec)
  }

  // MARK: Storing

  /// Stores an object under a key, replacing the previous one. O(size of the object).
  ///
  /// - Throws: `StorageError` with code `StorageError.Code.encodingFailed`; with code `unsupported` if the
  ///   previous object is of a newer version (see <doc:ChangingTypes>); otherwise as the engine's
  ///   `write(_:key:)`. The previous object is then kept.
  @concurrent public func store(_ object: Object, forKey key: CacheKey) async throws {
    try await write([(key, codec.encode(object, for: key))])
  }

  /// Stores many objects as one batch. If two have the same key, the later one is stored (rules W3, W4). O(N).
  ///
  /// - Throws: `StorageError` with code `StorageError.Code.encodingFailed`, naming the first key whose object
  ///   could not be encoded; then nothing is stored. Otherwise as ``store(_:forKey:)``.
  @concurrent public func store(_ objectsAndKeys: [(key: CacheKey, object: Object)]) async throws {
    let codec = codec
    let dataAndKeys = try await parallelMap(objectsAndKeys) { key, object in
      (key: key, data: try codec.encode(object, for: key))
    }
    try await write(dataAndKeys)
  }

  // MARK: Reading

  /// The object of the key, or nil if there is none. O(size of the object).
  ///
  /// - Throws: `StorageError` with code `StorageError.Code.decodingFailed`, or `unsupported` if the object is of a newer
  ///   version, naming the key; the stored bytes do not change. Otherwise as the engine's `read(key:)`.
  @concurrent public func object(forKey key: CacheKey) async throws -> Object? {
    guard let data = try await storage.read(key: key) else { return nil }
    return try decode(data, of: key)
  }

  /// The objects of the keys that have one, in the order of the request, including repeats (rule R2). O(N).
  ///
  /// - Throws: as ``objectsAndKeys(keys:)``.
  @concurrent public func objects(forKeys keys: [CacheKey]) async throws -> [Object] {
    try await decode(storage.readDataAndKeys(keys: keys)) { _, object in object }
  }

  /// The keys that have an object, with the object, in the order of the request, including repeats (rule R2).
  /// O(N).
  ///
  /// - Throws: `StorageError` with code `StorageError.Code.decodingFailed`, or `unsupported` if an object is of a newer
  ///   version, naming the first key whose bytes could not be decoded; the stored bytes do not change. Otherwise as the
  ///   engine's `readDataAndKeys(keys:)`.
  @concurrent public func objectsAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, object: Object)] {
    try await decode(storage.readDataAndKeys(keys: keys)) { (key: $0, object: $1) }
  }

  /// Every object in the engine, once, in no particular order (rule R3). O(N).
  ///
  /// - Throws: as ``allObjectsAndKeys()``.
  @concurrent public func allObjects() async throws -> [Object] {
    try await decode(storage.readAllDataAndKeys()) { _, object in object }
  }

  /// Every key in the engine with its object, once, in no particular order (rule R3). O(N).
  ///
  /// - Throws: `StorageError` with code `StorageError.Code.decodingFailed`, or `unsupported` if an object is of a newer
  ///   version, naming a key whose bytes could not be decoded; the stored bytes do not change. Otherwise as the engine's
  ///   `readAllDataAndKeys()`.
  @concurrent public func allObjectsAndKeys() async throws -> [(key: CacheKey, object: Object)] {
    try await decode(storage.readAllDataAndKeys()) { (key: $0, object: $1) }
  }

  private func decode<Output: Sendable>(
    _ dataAndKeys: [(key: CacheKey, data: Data)],
    _ output: @escaping @Sendable (CacheKey, Object) -> Output
  ) async throws -> [Output] {
    try await parallelMap(dataAndKeys) { key, data in output(key, try decode(data, of: key)) }
  }

  private func decode(_ data: Data, of key: CacheKey) throws(StorageError) -> Object {
    try versions.decode(data, of: key, with: codec)
  }

  /// Writes objects as one batch. If values of newer versions may be stored, checks first that none would be replaced.
  private func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    if codec.isVersioned || versions.hasSeenNewer {
      let operations = dataAndKeys.map { StorageOperation.write($0.data, key: $0.key) }
      try await storage.apply(operations, keepingNewerThan: codec.version)
    } else if dataAndKeys.count == 1 {
      try await storage.write(dataAndKeys[0].data, key: dataAndKeys[0].key)
    } else {
      try await storage.write(dataAndKeys)
    }
  }

  // MARK: Removing

  /// Removes the object of the key, if it has one (rule D1). Throws as the engine's `remove(key:)`.
  public func removeObject(forKey key: CacheKey) async throws { try await storage.remove(key: key) }

  /// Removes the objects of all of the keys, as one batch (rules D1, W4). O(N). Throws as the engine's
  /// `remove(keys:)`.
  public func removeObject(forKeys keys: [CacheKey]) async throws { try await storage.remove(keys: keys) }

  /// Removes everything from the engine (rule D2). Throws as the engine's `removeAllData()`.
  public func removeAllObjects() async throws { try await storage.removeAllData() }

  // MARK: Keys

  /// The number of objects (rule L2). Throws as the engine's `keyCount()`.
  public func keyCount() async throws -> Int { try await storage.keyCount() }

  /// The key of every object, once, in no particular order (rule K3). O(N). Throws as the engine's `allKeys()`.
  public func allKeys() async throws -> [CacheKey] { try await storage.allKeys() }

  /// When an object was first stored under the key, or nil if it has none (rule W2). Throws as the engine's
  /// `createdAt(key:)`.
  public func createdAt(forKey key: CacheKey) async throws -> Date? { try await storage.createdAt(key: key) }

  /// When an object was last stored under the key, or nil if it has none (rule W2). Throws as the engine's
  /// `updatedAt(key:)`.
  public func updatedAt(forKey key: CacheKey) async throws -> Date? { try await storage.updatedAt(key: key) }
}
