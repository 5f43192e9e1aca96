#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Stores values under keys.
///
/// An engine is anything that can keep bytes: a dictionary, a directory, a database, a service. The *place* of an engine is where
/// it keeps them: a directory, a database file, or a namespace on a server. All engines keep the same contract, so that
/// exchanging one for another changes speed and deployment, never behavior.
///
/// ## Writing an engine
///
/// Six methods are required: ``write(_:key:)``, ``read(key:)``, ``remove(key:)``, ``allKeys()``,
/// ``createdAt(key:)`` and ``updatedAt(key:)``. Everything else has a default made of these, which an engine
/// replaces where it can do better. An actor conforms; so does a class or a struct; a method that cannot fail
/// need not be marked `throws`. Begin each method that takes a key with `try key.validate()`, the one check of
/// keys that all engines share.
///
/// Then prove it, from a test target that depends on `ConformanceKit`:
///
/// ```swift
/// @Test(arguments: ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.checks)
/// func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
/// ```
///
/// ## The contract
///
/// Each rule has an identifier, by which documentation and checks name it. `ContractRule` in ConformanceKit states them: keys
/// (K1 to K4), values (V1 to V3), writing (W1 to W6), reading (R1 to R6), removing and counting (D1, D2, L1, L2), concurrency
/// (C1 to C6), opening and closing (O1 to O6), faults (F1 to F4), transactions (T1 to T5), change feeds (X1 to X5) and networks (N1 to
/// N6). ``EngineCapabilities`` are the promises that an engine may make beyond those that hold for all.
///
/// A key is *absent* when there is no entry under it. A write is *acknowledged* once the call has returned without throwing.
public protocol StorageEngine: Sendable {
  /// What the engine promises beyond the rules that all engines keep. Default: nothing.
  var capabilities: EngineCapabilities { get }

  /// Makes `data` the value of the key, whether or not it had one (rules W1, W2). **Required.**
  ///
  /// - Throws: ``StorageError`` with code `invalidKey`, `valueTooLarge`, `diskFull`, `readOnly`,
  ///   `permissionDenied`, `corrupted`, `closed` or `io`; `locked` if another process has been writing for too long (rule O5);
  ///   from an engine that reaches a server also `unavailable`, with nothing done, and `outcomeUnknown`, after which it may have
  ///   been done (rule N2). `CancellationError` if the task was cancelled, with nothing done (rule C4).
  func write(_ data: Data, key: CacheKey) async throws

  /// Writes many entries as one batch; a later entry for the same key wins (rules W3, W4).
  ///
  /// Default: writes them one by one.
  ///
  /// - Throws: as ``write(_:key:)``. One invalid key means that nothing is written.
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws

  /// The value of the key, or nil if it is absent (rules R1, R4). **Required.**
  ///
  /// - Throws: ``StorageError`` with code `invalidKey`, `corrupted`, `permissionDenied`, `closed` or `io`; `locked` if it has to
  ///   wait for another process for too long (rule O5); from an engine that reaches a server also `unavailable`.
  ///   `CancellationError` if the task was cancelled (rule C4).
  func read(key: CacheKey) async throws -> Data?

  /// The values of the keys that exist, in the order of the request, repeats included (rule R2).
  ///
  /// Default: one read for each key, n calls for n keys. Throws as ``read(key:)``.
  func read(keys: [CacheKey]) async throws -> [Data]

  /// The keys that exist with their values, in the order of the request, repeats included (rule R2).
  ///
  /// Default: one read for each key, n calls for n keys. Throws as ``read(key:)``.
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)]

  /// Every value, once, in no particular order (rule R3).
  ///
  /// Default: O(N), one read for each of ``allKeys()``. Throws as ``read(key:)``.
  func readAllData() async throws -> [Data]

  /// Every key with its value, once, in no particular order (rule R3).
  ///
  /// Default: O(N), one read for each of ``allKeys()``. Throws as ``read(key:)``.
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)]

  /// Makes the key absent, whether or not it had a value (rule D1). **Required.** Throws as ``write(_:key:)``.
  func remove(key: CacheKey) async throws

  /// Makes all of the keys absent, as one batch (rules D1, W4).
  ///
  /// Default: one by one, n calls for n keys. Throws as ``write(_:key:)``.
  func remove(keys: [CacheKey]) async throws

  /// Makes every key absent (rule D2).
  ///
  /// Default: O(N), removes each of ``allKeys()``. Throws as ``write(_:key:)``.
  func removeAllData() async throws

  /// Whether there is an entry under the key.
  ///
  /// Default: whether it has a ``createdAt(key:)``. Throws as ``read(key:)``.
  func keyExists(_ key: CacheKey) async throws -> Bool

  /// Those of the keys that exist, in the order of the request (rule L1).
  ///
  /// Default: one call of ``keyExists(_:)`` for each key. Throws as ``read(key:)``.
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey]

  /// The number of entries (rule L2).
  ///
  /// Default: O(N), counts ``allKeys()``. Throws as ``allKeys()``.
  func keyCount() async throws -> Int

  /// Every key, once, in no particular order (rule K3). **Required.**
  ///
  /// - Throws: as ``read(key:)``, but for `invalidKey`.
  func allKeys() async throws -> [CacheKey]

  /// When the key went from absent to present, or nil if it is absent (rule W2). **Required.** Throws as
  /// ``read(key:)``.
  func createdAt(key: CacheKey) async throws -> Date?

  /// When the key was last written, or nil if it is absent (rule W2). **Required.** Throws as ``read(key:)``.
  func updatedAt(key: CacheKey) async throws -> Date?

  /// Every entry with its timestamps, in the order in which the keys were first written (rule R6).
  ///
  /// Default: O(N log N), reads each entry and sorts by creation time, then by key. Throws as ``read(key:)``.
  func readAllEntries() async throws -> [StorageEntry]

  /// The entries of those keys that exist, each once, with their timestamps and in the order of ``readAllEntries()``.
  ///
  /// Default: O(n log n) for n keys, reads each entry and sorts by creation time, then by key. Throws as ``read(key:)``.
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry]

  /// Writes entries as another engine had them, as one batch: each with its times, and keys that are absent in the order given, after
  /// those that are there (rules W3, W4, R6).
  ///
  /// What moves data from one place to another uses this. An entry whose key is there already is replaced, times included, and
  /// keeps its position in the order; this is the one call after which ``updatedAt(key:)`` may be earlier than before. A later entry for the
  /// same key wins. Times are stored as exactly as the engine stores its own. Those that it cannot store, and times of creation
  /// after that of the last write, become the nearest that it can, or are refused; the built-in engines refuse none.
  ///
  /// Default, for engines without the capability ``EngineCapabilities/preservesTimestamps``: writes the values as one batch, so
  /// that the times are those of this call.
  ///
  /// - Throws: as ``write(_:key:)``. One invalid key means that nothing is written.
  func writeEntries(_ entries: [StorageEntry]) async throws

  /// Does the operations in the order given, as one batch (rules W4, W5).
  ///
  /// Default: with ``write(_:)`` or ``remove(keys:)`` if they can do all of it, otherwise one by one, once every key has been
  /// found valid. Throws as ``write(_:key:)``.
  func apply(_ operations: [StorageOperation]) async throws

  /// The entries of a range in ascending byte order of keys, at most `limit` of them (rule R5).
  ///
  /// Nil means no limit; zero and less mean no entries. Default: O(N log N), sorts those of ``allKeys()`` that are in
  /// the range, then reads as many as are asked for.
  ///
  /// - Throws: as ``read(key:)``; `invalidKey` if a bound of the range is no valid key.
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)]

  /// Reads and writes as if nothing else ran meanwhile (rules T1 to T5). For engines with the capability
  /// ``EngineCapabilities/transactions``.
  ///
  /// ```swift
  /// let rest = try await engine.withTransaction { transaction in
  ///   let stock = try transaction.read(key: shelf).flatMap(Stock.init) ?? .empty
  ///   let rest = try stock.removing(order)         // throws if there is not enough, and nothing has changed then
  ///   try transaction.write(rest.data, key: shelf)
  ///   return rest
  /// }
  /// ```
  ///
  /// The body is synchronous, so that no transaction stays open while a task is suspended, and runs on a thread that may wait.
  /// It may run more than once, of which the last run counts: leave everything but the transaction alone in it. As long as it
  /// runs, writes wait. It must not wait for another call of the engine.
  ///
  /// Default: throws `unsupported`.
  ///
  /// - Returns: what the body returned.
  /// - Throws: what the body threw, as it is, with nothing changed; ``StorageError`` with code `conflict` from an engine that
  ///   gives up because others change the same entries, with nothing changed; otherwise as ``write(_:key:)``.
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result

  /// A stream of all changes from now on, by this engine, another one on the same place, another process
  /// (rules X1 to X5). For engines with the capability ``EngineCapabilities/changeFeed``.
  ///
  /// What was acknowledged before this returned can be read, and what is acknowledged afterwards is in the stream: so subscribe
  /// first, then read, and nothing is missed. A subscriber that has received an element reads the change, or a later state. A
  /// place in which nothing changes costs nothing. A stream does not keep its engine: dropping the last reference to the engine
  /// releases everything, even while subscribers wait for changes (rule O4).
  ///
  /// Default: throws `unsupported`.
  ///
  /// - Throws: ``StorageError`` with code `closed`, `locked` if another process has been writing for too long, or `io` and others
  ///   if the system does not let the place be watched; `CancellationError`.
  func changes() async throws -> StorageChanges

  /// Reads everything that is stored, and throws if anything of it is corrupted (rule F2). Changes nothing.
  ///
  /// O(N), and more than a read of all entries where an engine keeps more than entries: checksums, trees, lists of free
  /// pages. What opening does not look at, so that it costs the same with a million entries as with a thousand (rule
  /// O6), this does. Default: reads all entries.
  ///
  /// - Throws: ``StorageError`` with code `corrupted` that names what is corrupted; otherwise as ``read(key:)``.
  func verify() async throws

  /// Waits for what is under way and releases what the engine holds (rule O3). Default: does nothing.
  ///
  /// - Throws: ``StorageError`` with code `io` or `diskFull` if what was acknowledged could not be written to the disk.
  func close() async throws
}
