import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Values under typed keys: in memory, and behind that in any engine or in none.
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
/// A read looks in memory first and waits for storage only if it must. An assignment does not wait at all: every later
/// read sees it, and it is written in the background. **What has not been written when the process ends is lost.**
/// ``sync()`` waits until it is, and tells what could not be written.
/// ``store(_:forKey:expiresIn:)`` and ``removeValue(forKey:)`` return when the engine has acknowledged.
/// ``fetch(_:expiresIn:fallback:)`` loads what is missing, once, however many ask for it.
///
/// A cache belongs to no actor and may be used by any number of tasks. For each key every read gives the value of the
/// latest change: the order is the same for all. Values are encoded and decoded off the main actor.
///
/// ## Keys and namespaces
///
/// A key is anything that is `Hashable`, `Encodable` and `Sendable`. What identifies it is its encoding, byte for
/// byte: the text of a `String`, `UUID` or `URL`, the JSON of anything else. So `é` as one scalar and as two are two
/// keys, and a key's type should contain no `Set`, and no `Dictionary` whose keys are neither `String` nor `Int`: their
/// elements are encoded in no particular order. A key may be empty or of any length.
///
/// Caches with different namespaces share an engine without seeing each other, whatever the namespaces are, and beside
/// entries of anybody else. An entry's key in the engine is `cache:3:Foo:=key` for the key `key` in the namespace
/// `Foo` of three bytes; a namespace of more than some 240 bytes, and what would be longer than `CacheKey.maximumLength`,
/// is hashed, and the entry holds the whole name, so that a hash which two keys share makes one of them a miss, and
/// never the other's value. Two caches with one namespace in one engine share their entries, but not their memory:
/// what one has in memory it does not learn anew from the other.
///
/// ## Limits and expiry
///
/// In memory, what was used least recently goes first; in storage, what was written longest ago. An entry that has gone
/// from storage may still be in memory. What was assigned and not written yet is never dropped and not counted: who
/// assigns faster than the engine writes should wait for ``sync()`` at times.
///
/// A regular read ignores a value that has expired; `cache[item: key]` gives it all the same. It stays until it is
/// replaced, removed or driven out, or until ``removeExpired()``.
///
/// ## Failures
///
/// What cannot be read throws and is never taken for a miss (rule R4). An entry that cannot be decoded throws
/// `StorageError.Code.decodingFailed` until its key is assigned or removed, or it has expired;
/// ``fetch(_:expiresIn:fallback:)`` loads and replaces it, since whoever uses it can. What could not be written
/// stays in memory for as long as there is room, and until it is written, or assigned anew, its key is otherwise a
/// miss: storage's older value does not come back while this cache is there. For that the cache remembers each key
/// that could not be written, whatever the limits are, some hundred bytes and the text of the key: while an engine
/// refuses all writes, memory grows with every new key that is assigned. A value that cannot be encoded, or is too
/// large for the engine, is removed from storage. Values for which their encoding stands for another,
/// `Int??.some(nil)` or a relative URL in JSON, count as such; within a type of one's own that is up to the type.
public final class PersistentCache<Key: Hashable & Encodable & Sendable, Value: Codable & Sendable>: Sendable,
  AssignableCache
{
  typealias State = CacheState<Item, Value>

  /// All that a cache consists of. Caches that are one cache to their users have one core.
  package final class Core: Sendable {
    fileprivate let storage: CacheStorage?
    fileprivate let codec: any Codec
    fileprivate let memoryLimit: CacheLimit
    fileprivate let storageLimit: CacheLimit
    fileprivate let now: @Sendable () -> Date
    fileprivate let state: MutexProtected<State>

    package init(
      storage: (any StorageEngine)?, namespace: String, memoryLimit: CacheLimit, storageLimit: CacheLimit,
      codec: any Codec = .json, now: @escaping @Sendable () -> Date = { Date() }
    ) {
      self.storage = storage.map { CacheStorage(engine: $0, namespace: CacheNamespace(namespace)) }
      self.codec = codec
      self.memoryLimit = memoryLimit
      self.storageLimit = storageLimit
      self.now = now
      state = MutexProtected(State(memory: MemoryTier(limit: memoryLimit)))
    }
  }

  let core: Core
  var storage: CacheStorage? { core.storage }
  var codec: any Codec { core.codec }
  var memoryLimit: CacheLimit { core.memoryLimit }
  var storageLimit: CacheLimit { core.storageLimit }
  var now: @Sendable () -> Date { core.now }

  /// A cache that has its entries, in memory and in storage, in common with all that have this core.
  package init(core: Core) { self.core = core }

  /// A cache in front of an engine, or of none. Reads and writes nothing yet.
  ///
  /// - Parameters:
  ///   - storage: where values outlive the process. With nil the cache is in memory alone, and `memoryLimit` is all
  ///     the room there is.
  ///   - namespace: what tells the entries of this cache from those of others in the same engine. Any text.
  ///   - memoryLimit: how much is kept in memory. A limit of bytes without storage means that values are encoded to
  ///     weigh them; what cannot be encoded is not kept where there is a limit of bytes.
  ///   - storageLimit: how much is kept in storage. With a limit the first write reads the whole namespace once; later
  ///     ones cost the same however many entries there are. A value that is larger than the limit of bytes is not
  ///     stored. What other caches write into the namespace after that is not counted. If the reading fails, there is
  ///     no limit until ``sync()``, which throws the failure, has read it at a later attempt.
  ///   - codec: how values become bytes.
  ///   - now: the clock that expiry is measured by.
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

  /// Whether a change has to be encoded, and so goes through the queue, or is done once it is in memory.
  var isWrittenBehind: Bool { storage != nil || memoryLimit.bytes != nil }

  /// Calls `body` with the state while nobody else has it, then lets go of what was dropped.
  func withState<Result: Sendable>(_ body: (inout State) -> Result) -> Result {
    let (result, dropped) = core.state.withLock { state in (body(&state), state.memory.takeDropped()) }
    withExtendedLifetime(dropped) {}
    return result
  }
}
