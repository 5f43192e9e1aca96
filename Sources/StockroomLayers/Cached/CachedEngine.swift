public import StockroomCore
public import StockroomStore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// Caches values of a slow or remote engine in memory. ``StockroomCore/StorageEngine/cached(limit:)`` returns it.
///
/// ``read(key:)`` and ``keyExists(_:)`` use the cache if possible; every other call goes to the engine below. A value, or its
/// absence, is cached once ``read(key:)`` has read it, or once a single write or removal has been acknowledged. The first read
/// starts a subscription to the feed; nothing is cached before the subscription exists, and no call waits for it. The least
/// recently used values are evicted first. The cache adds O(1) to a call for one key, and O(n) to a change of n keys.
///
/// Before a change begins, the value is removed from the cache, and values that are read during a change are not cached. So after
/// acknowledged changes that were made through this engine, its copies or ``base``, a read returns what it would return without the
/// cache.
///
/// Changes by others arrive through the feed of the engine below, which each read checks. A change by another engine, process or
/// machine is visible once the feed has reported it, which takes milliseconds. Until then a read may return the previous value,
/// which the engine below would not:
///
/// - Rules C2 and C3 do not hold with regard to other engines on the place, so the capability `multiProcess` is not claimed.
/// - While a server is unreachable, or after a local place was deleted (rule C6), cached values are returned until the feed reports
///   it.
/// - Transactions, batches and reads of many keys never use the cache, so no update is lost. The streams of ``changes()`` are in
///   step with the cache: after receiving an element, a subscriber reads the change (rule X2).
///
/// Nothing is cached for an engine without the capability `changeFeed`. Nothing is cached in front of an ``ExpiringEngine`` either,
/// even with other layers in between, since the feed does not report that an entry expires: put that layer in front of this one.
public struct CachedEngine<Base: StorageEngine>: StorageLayer {
  /// The engine below.
  public let base: Base
  private let cache: CachedValues

  init(base: Base, limit: CacheLimit) {
    self.base = base
    cache = CachedValues(limit: limit)
    // Otherwise expired values would be returned.
    if expires(base) { cache.stop() }
  }

  /// The capabilities of ``base``, except `multiProcess`.
  public var capabilities: EngineCapabilities { base.capabilities.subtracting(.multiProcess) }

  // MARK: Reading

  /// Returns the value from the cache. If it is not there, reads it from the engine below and caches it.
  public func read(key: CacheKey) async throws -> Data? {
    if cache.claimSubscription() { follow() }
    switch cache.beginRead(of: key) {
    case .known(let value): return value
    case .unknown(let ticket):
      var value: Data??
      defer { cache.endRead(of: key, ticket, value) }
      let data = try await base.read(key: key)
      value = .some(data)
      return data
    }
  }

  /// Whether the key exists: from the cache if possible, otherwise from the engine below.
  public func keyExists(_ key: CacheKey) async throws -> Bool {
    if let value = cache.value(of: key) { return value != nil }
    return try await base.keyExists(key)
  }

  /// Subscribes to the feed. No value is cached before that.
  ///
  /// No read waits for it: subscribing may wait for a transaction of any length (rule T5), or for the time limit of a server that
  /// cannot be reached.
  private func follow() {
    Task { [base, cache] in
      // The cache already contains its own writes, so the feed leaves them out.
      let origin = cache.origin
      do {
        let changes = try await ChangeOrigin.$current.withValue(origin) { try await base.changes() }
        cache.follow(changes, leavingOut: origin)
      } catch let error as StorageError where error.code == .unsupported {
        cache.follow(nil, leavingOut: origin)
      } catch {
        // A later read retries.
        cache.subscriptionFailed()
      }
    }
  }

  // MARK: Writing

  /// Writes the value, and caches it once the write is acknowledged.
  public func write(_ data: Data, key: CacheKey) async throws {
    try await changing(key, to: data) { try await base.write(data, key: key) }
  }

  /// Removes the value, and caches its absence once the removal is acknowledged.
  public func remove(key: CacheKey) async throws {
    try await changing(key, to: nil) { try await base.remove(key: key) }
  }

  /// Writes the values to the engine below, and removes their keys from the cache. Costs and throws as the engine below.
  @concurrent public func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await changing(dataAndKeys.map(\.key)) { try await base.write(dataAndKeys) }
  }

  /// Removes the entries from the engine below, and their keys from the cache. Costs and throws as the engine below.
  @concurrent public func remove(keys: [CacheKey]) async throws {
    try await changing(keys) { try await base.remove(keys: keys) }
  }

  /// Removes all entries from the engine below, and clears the cache. Costs and throws as the engine below.
  public func removeAllData() async throws {
    try await changing(everything: true) { try await base.removeAllData() }
  }

  /// Performs the operations in the engine below, and removes their keys from the cache. Costs and throws as the engine below.
  @concurrent public func apply(_ operations: [StorageOperation]) async throws {
    try await changing(operations.compactMap(\.key), everything: operations.contains { $0.key == nil }) {
      try await base.apply(operations)
    }
  }

  /// Writes the entries to the engine below, and removes their keys from the cache. Costs and throws as the engine below.
  @concurrent public func writeEntries(_ entries: [StorageEntry]) async throws {
    try await changing(entries.map(\.key)) { try await base.writeEntries(entries) }
  }

  /// Runs a transaction of the engine below. Its reads do not use the cache.
  public func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let change = CachedValues.Change()
    defer { cache.end(change) }
    return try await base.withTransaction { [cache] in
      try body(CachedTransaction(base: $0, cache: cache, change: change))
    }
  }

  private func changing(_ key: CacheKey, to value: Data?, _ work: () async throws -> Void) async throws {
    let change = CachedValues.Change()
    cache.begin(change, of: [key])
    var written: Data??
    defer { cache.end(change, written: written.map { (key, $0) }) }
    // If the caller has an origin of its own, as a Store does, the feed reports this write too, and it cannot be distinguished from
    // a change by others.
    guard ChangeOrigin.current == nil else { return try await work() }
    do {
      try await ChangeOrigin.$current.withValue(cache.origin) { try await work() }
    } catch let error as StorageError where error.code == .outcomeUnknown {
      cache.outcomeIsUnknown()
      throw error
    }
    written = .some(value)
  }

  private func changing(
    _ keys: [CacheKey] = [], everything: Bool = false, _ work: () async throws -> Void
  ) async throws {
    let change = CachedValues.Change()
    cache.begin(change, of: keys, everything: everything)
    defer { cache.end(change) }
    try await work()
  }

  // MARK: Changes and closing

  /// The change feed of the engine below. Once an element has been received, a read through this engine returns the change too
  /// (rule X2).
  public func changes() async throws -> StorageChanges {
    try await base.changes().mapping { [cache] in
      cache.forget($0)
      return $0
    }
  }

  /// Clears the cache, and closes the engine below.
  public func close() async throws {
    cache.stop()
    try await base.close()
  }
}

extension StorageEngine {
  /// This engine, with the most recently used values cached in memory. See ``CachedEngine``.
  ///
  /// For a remote engine, such as PostgreSQL. A local engine usually reads values from memory already.
  ///
  /// - Parameter limit: The maximum number of entries and of bytes in memory. An entry, even one that is known to be absent, counts
  ///   with the sizes of its value and its key and 128 bytes more.
  public func cached(limit: CacheLimit) -> CachedEngine<Self> { CachedEngine(base: self, limit: limit) }
}

extension StorageOperation {
  /// The key that is written or removed. Nil if the operation removes all keys.
  fileprivate var key: CacheKey? {
    switch self {
    case .write(_, let key), .remove(let key): key
    case .removeAll: nil
    }
  }
}
