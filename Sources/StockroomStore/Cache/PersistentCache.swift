import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A cache of values under typed keys, in memory and optionally in an engine.
///
/// ```swift
/// let cache = PersistentCache<UUID, [Message]>(storage: engine, namespace: "com.example.app")
/// if let messages = try await cache[roomID] {
///   show(messages)
/// } else {
///   cache[roomID] = try await loadMessages(of: roomID)
/// }
/// ```
///
/// A read looks in memory first and waits for storage only on a miss. An assignment does not wait: every later read returns
/// the assigned value, which is written in the background. **Values that have not been written when the process ends are
/// lost.** ``sync()`` waits until all are written, and throws the errors of failed writes. ``store(_:forKey:expiresIn:)``
/// and ``removeValue(forKey:)`` return when the engine has acknowledged the change. ``fetch(_:expiresIn:fallback:)`` loads
/// missing values, once for all concurrent callers.
///
/// A cache belongs to no actor and may be used by any number of tasks. Reads and changes of one key are linearizable.
/// Values are encoded and decoded off the main actor.
///
/// ## Keys and namespaces
///
/// A key is any value that is `Hashable`, `Encodable` and `Sendable`. Keys are compared by their encoding, byte for
/// byte: the text of a `String`, `UUID` or `URL`, and the JSON of any other type. So `é` as one scalar and as two are two
/// keys, and a key's type should contain no `Set`, and no `Dictionary` whose keys are neither `String` nor `Int`: their
/// elements are encoded in an unspecified order. A key may be empty or of any length.
///
/// Caches with different namespaces, and other users of the engine, can share it without affecting each
/// other. The engine's key of an entry is `cache:3:Foo:=key` for the key `key` in the namespace `Foo` of
/// three bytes. A namespace of more than about 240 bytes, and a key that would exceed
/// `CacheKey.maximumLength`, is hashed; the entry then contains its full name, so that a hash collision is a
/// miss and never returns another key's value.
///
/// Two caches with the same namespace in one place, in one process or in several, share their entries in
/// storage. If the engine has `EngineCapabilities.changeFeed`, an entry that one of them changes leaves the
/// memory of the others. The first read or write subscribes to the feed; entries that are read before the
/// subscription do not stay in memory. Without a feed, a cache does not see that another one has replaced an
/// entry that it has in memory.
///
/// ## Limits and expiry
///
/// In memory the least recently used entries are evicted first, in storage the least recently written. An entry that has
/// been evicted from storage may still be in memory. Values that are not written yet are never evicted and do not count towards the
/// limit: call ``sync()`` from time to time when assigning faster than the engine writes.
///
/// A regular read ignores a value that has expired; `cache[item: key]` returns it. An expired value stays stored until it
/// is replaced, removed or evicted, or until ``removeExpired()``.
///
/// In front of an engine or a layer whose entries expire, such as `ExpiringEngine`, values leave memory once they are written.
///
/// ## Failures
///
/// A read that fails throws and is never treated as a miss (rule R4). Reading an entry that cannot be decoded throws
/// `StorageError.Code.decodingFailed` until its key is assigned or removed, or it has expired;
/// ``fetch(_:expiresIn:fallback:)`` loads and replaces it. A value whose write failed stays in memory until it is evicted;
/// after that its key is a miss until it is written or assigned again, so that the older stored value does not reappear
/// during the life of the cache. For this purpose the cache keeps each key whose write failed, regardless of limits: about
/// a hundred bytes and the encoded key. While an engine refuses all writes, memory grows with every new key that is
/// assigned. If an assigned value cannot be encoded, or is too large for the engine, the older stored value of the key is
/// removed. Values that do not survive encoding, such as `Int??.some(nil)` or a relative URL in JSON, count as values that
/// cannot be encoded; within your own types, the type is responsible.
public final class PersistentCache<Key: Hashable & Encodable & Sendable, Value: Codable & Sendable>: Sendable,
  AssignableCache
{
  typealias State = CacheState<Item, Value>

  /// The contents and settings of a cache. Several instances may share one core.
  package final class Core: Sendable {
    let storage: CacheStorage?
    fileprivate let codec: ItemCodec<Value>
    fileprivate let memoryLimit: CacheLimit
    let storageLimit: CacheLimit
    fileprivate let now: @Sendable () -> Date
    fileprivate let state: MutexProtected<State>
    /// Distinguishes the changes of this cache from those of others in the engine's feed.
    let origin = ChangeOrigin()
    let feed = MutexProtected(CacheFeed.notWatched)
    /// Whether values that are stored may stay in memory too. False if entries of the engine expire, since that is not reported.
    let keepsStoredValues: Bool

    package init(
      storage: (any StorageEngine)?, namespace: String, memoryLimit: CacheLimit, storageLimit: CacheLimit,
      codec: any Codec = .json, now: @escaping @Sendable () -> Date = { Date() }
    ) {
      keepsStoredValues = storage.map { !ExpiringEntries.areExpected(in: $0) } ?? true
      self.storage = storage.map { CacheStorage(engine: $0, namespace: CacheNamespace(namespace)) }
      self.codec = ItemCodec(codec)
      self.memoryLimit = memoryLimit
      self.storageLimit = storageLimit
      self.now = now
      state = MutexProtected(State(memory: MemoryTier(limit: memoryLimit)))
    }

    deinit { feed.withLock { if case .watched(let task) = $0 { task?.cancel() } } }

    /// Calls `body` with exclusive access to the state, then releases the items that it has removed.
    func withState<Result: Sendable>(_ body: (inout State) -> Result) -> Result {
      let (result, dropped) = state.withLock { state in (body(&state), state.memory.takeDropped()) }
      withExtendedLifetime(dropped) {}
      return result
    }
  }

  let core: Core
  var storage: CacheStorage? { core.storage }
  var codec: ItemCodec<Value> { core.codec }
  var memoryLimit: CacheLimit { core.memoryLimit }
  var storageLimit: CacheLimit { core.storageLimit }
  package var now: @Sendable () -> Date { core.now }

  /// Creates an instance that shares the contents and settings of `core`.
  package init(core: Core) { self.core = core }

  /// Creates a cache in front of an engine, or in memory only. Reads and writes nothing yet.
  ///
  /// - Parameters:
  ///   - storage: The engine that stores the values. With nil the cache is in memory only.
  ///   - namespace: Distinguishes the entries of this cache from others in the same engine. Any text.
  ///   - memoryLimit: The capacity of memory. With a limit of bytes and no storage, values are encoded to determine their
  ///     size. With a limit of bytes, values that cannot be encoded are not kept.
  ///   - storageLimit: The capacity of storage. With a limit, the first write reads the whole namespace, and so does the
  ///     first write after ``removeAll()``, after rewriting old versions, or after others have changed unknown keys; the
  ///     cost of other writes does not depend on the number of entries. A value larger than the limit of bytes is not
  ///     stored. Entries that others write or remove count as such once the feed of the engine has reported them: the next
  ///     write reads them again. If a read of the whole namespace fails, ``sync()`` throws the error, and there is no limit
  ///     until a later ``sync()`` has repeated the read.
  ///   - codec: Converts values to bytes.
  ///   - now: The clock for expiry.
  public init(
    storage: (any StorageEngine)?, namespace: String = "",
    memoryLimit: CacheLimit = CacheLimit(entries: 1_000),
    storageLimit: CacheLimit = .unlimited, codec: any Codec = .json,
    now: @escaping @Sendable () -> Date = { Date() }
  ) {
    core = Core(
      storage: storage, namespace: namespace, memoryLimit: memoryLimit, storageLimit: storageLimit,
      codec: codec,
      now: now)
  }

  /// Whether changes have to be encoded and therefore go through the queue. If not, they affect memory only.
  var isWrittenBehind: Bool { storage != nil || memoryLimit.bytes != nil }

  /// Calls `body` with exclusive access to the state, then releases the items that it has removed.
  func withState<Result: Sendable>(_ body: (inout State) -> Result) -> Result { core.withState(body) }
}
