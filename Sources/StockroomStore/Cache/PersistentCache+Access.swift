import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PersistentCache {
  /// The value of a key, or nil if there is none or it has expired.
  ///
  /// O(1) and without waiting if the value is in memory; otherwise one read from the engine.
  ///
  /// - Throws: what the engine throws (rule R4); `StorageError` with code `decodingFailed` if the stored
  ///   entry has not expired and cannot be decoded as this type; `unsupported` if it is of a newer version;
  ///   `encodingFailed` if the key cannot be encoded.
  public subscript(key: Key) -> Value? {
    get async throws {
      // The time is taken before the read. Otherwise a value could count as expired that was valid when it was read and has
      // been renewed since then.
      let now = now()
      guard let item = try await find(EncodedKey(key), .unexpired), !item.isExpired(at: now) else {
        return nil
      }
      return item.value
    }
  }

  /// The value of a key with its expiry, even if it has expired, or nil if there is none.
  ///
  /// Costs and throws the same as a regular read, and throws `decodingFailed` for expired entries too.
  public subscript(item key: Key) -> Item? {
    get async throws { try await find(EncodedKey(key), .all) }
  }

  /// Sets a value that does not expire; nil removes the entry: `cache[key] = value`.
  ///
  /// Every later read returns the value. It is written in the background, in the order of assignments; if several
  /// assignments to one key are queued, only the last one is written, in the position of the first. ``sync()`` throws the
  /// errors of failed writes. O(1), and never waits for storage.
  ///
  /// **Values that have not been written when the process ends are lost**, even if it ends by returning from `main`. Wait
  /// for ``sync()`` before that, or use ``store(_:forKey:expiresIn:)``.
  public func assign(_ value: Value?, forKey key: Key) { assign(item: value.map { Item($0) }, forKey: key) }

  /// Sets an item; nil removes the entry: `cache[item: key] = item`. See ``assign(_:forKey:)``.
  public func assign(item: Item?, forKey key: Key) {
    let item = item?.startingLifetime(at: now())
    do {
      let encodedKey = try EncodedKey(key)
      schedule { assign(item, to: encodedKey, in: &$0) }
    } catch {
      withState { $0.failures.append(error) }
    }
  }

  /// Sets an item unless there is one that has not expired, including one that is stored during the call. Returns whether
  /// the item was set.
  ///
  /// Costs one read, or several if the key changes meanwhile. The item is written in the background as by ``assign(item:forKey:)``.
  ///
  /// - Throws: as a regular read.
  package func assign(item: Item, forAbsentKey key: Key) async throws -> Bool {
    let item = item.startingLifetime(at: now())
    let encodedKey = try EncodedKey(key)
    var result: Bool?
    while result == nil {
      let version = withState { $0.beginWatching(encodedKey) }
      defer { withState { $0.endRead(of: encodedKey, version: version, found: nil, size: 0) } }
      // If calls of `store(_:forKey:)` or `removeValue(forKey:)` are in progress, wait for their outcome. Later calls
      // change the version.
      if withState({ !$0.changesUnderWay.isEmpty }) { try await inOrder {} }
      if try await self[key] != nil { return false }
      schedule { state in
        guard state.isUnchanged(encodedKey, since: version) else { return }
        assign(item, to: encodedKey, in: &state)
        result = true
      }
    }
    return result ?? false
  }

  /// Sets a value that expires `lifetime` seconds from now, or never if that is nil. Returns when the engine has
  /// acknowledged the write.
  ///
  /// After that, every read returns the value. Costs one write of the engine, less if several tasks store at the same time.
  ///
  /// - Throws: `StorageError` with code `encodingFailed`, or what the engine throws. Nothing has changed then, unless the
  ///   error leaves the outcome unknown, as `io` does: the next read then goes to the engine.
  @concurrent
  public func store(_ value: Value, forKey key: Key, expiresIn lifetime: TimeInterval? = nil) async throws {
    try await change(EncodedKey(key), to: newItem(value, expiresIn: lifetime))
  }

  /// Removes the entry of a key. Returns when the engine has acknowledged the removal.
  ///
  /// Costs and throws the same as ``store(_:forKey:expiresIn:)``.
  @concurrent
  public func removeValue(forKey key: Key) async throws {
    try await change(EncodedKey(key), to: nil)
  }

  func newItem(_ value: Value, expiresIn lifetime: TimeInterval?) -> Item {
    lifetime.map { Item(value, expiresIn: $0).startingLifetime(at: now()) } ?? Item(value)
  }

  func assign(_ item: Item?, to key: EncodedKey, in state: inout State) {
    if isWrittenBehind { state.assign(item, to: key) } else { state.set(item, size: 0, for: key) }
  }

  private func change(_ key: EncodedKey, to item: Item?) async throws {
    try Task.checkCancellation()
    guard isWrittenBehind else { return withState { $0.set(item, size: 0, for: key) } }
    let value = try item.map { try encoded($0.value, for: key) }
    try await withCheckedThrowingContinuation { continuation in
      let change = CacheChange(key: key, item: item, value: value, acknowledgement: continuation)
      schedule { $0.enqueue(change) }
    }
  }
}

// MARK: - Reading

extension PersistentCache {
  /// The entries for which a failed decoding throws. Any other entry that cannot be decoded counts as a miss, unless it is
  /// of a newer version and has not expired.
  enum DecodingRequirement { case all, unexpired, none }

  /// The item of a key, from memory or from storage.
  func find(_ key: EncodedKey, _ requirement: DecodingRequirement) async throws -> Item? {
    guard let storage else { return withState { $0.lookUp(key) } ?? nil }
    switch withState({ $0.beginRead(of: key) }) {
    case .known(let item): return item
    case .inStorage(let version): return try await read(key, requirement, version: version, from: storage)
    }
  }

  /// The value of a key if it is in memory and has not expired.
  func valueInMemory(_ key: EncodedKey) -> Value? {
    guard let item = withState({ $0.lookUp(key) }) ?? nil, !item.isExpired(at: now()) else { return nil }
    return item.value
  }

  @concurrent
  private func read(
    _ key: EncodedKey, _ requirement: DecodingRequirement, version: Int?, from storage: CacheStorage
  ) async throws -> Item? {
    var found: Item?
    var size = 0
    // Values that are read before the cache has subscribed to the changes of others do not stay in memory.
    let isKept = core.startFollowing() == nil && core.keepsStoredValues
    defer { withState { $0.endRead(of: key, version: version, found: isKept ? found : nil, size: size) } }
    var hasExpired = false
    do {
      guard let entry = try await storage.read(key) else { return nil }
      hasExpired = entry.isExpired(at: now())
      let value = try codec.decode(entry.value, of: storage.namespace.name(of: key).key)
      found = Item(value, expiresAt: entry.expiresAt)
      size = entry.value.count
    } catch let error as StorageError
      where requirement != .all && (hasExpired || requirement == .none && error.code == .decodingFailed)
    {
      // A miss. An unexpired entry of a newer version is not a miss, so that nothing is stored in its place.
    }
    return found
  }
}
