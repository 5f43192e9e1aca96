#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Stores values under keys.
///
/// An engine is anything that can store bytes: a dictionary, a directory, a database, a service. The *place* of an engine is where
/// it stores them: a directory, a database file, or a namespace on a server. All engines follow the same contract, so
/// replacing one with another changes speed and deployment, never behavior.
///
/// ## Writing an engine
///
/// Six methods are required: ``write(_:key:)``, ``read(key:)``, ``remove(key:)``, ``allKeys()``,
/// ``createdAt(key:)`` and ``updatedAt(key:)``. Everything else has a default implementation built on these, which an
/// engine replaces where it can do better. Actors, classes and structs can conform; a method that cannot fail
/// need not be marked `throws`. In an actor, too, declare a method `async` that has a default implementation: otherwise a
/// call on a value of the engine's own type, such as `myEngine.close()`, resolves to the default, which for ``close()``
/// does nothing. Begin each method that takes a key with `try key.validate()`, the check of keys that all engines share.
///
/// Then verify the engine from a test target that depends on `ConformanceKit`:
///
/// ```swift
/// @Test(arguments: ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.checks)
/// func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
/// ```
///
/// ## The contract
///
/// Documentation and checks refer to each rule by its identifier. `ContractRule` in ConformanceKit states them: keys (K1 to K4),
/// values (V1 to V3), writing (W1 to W6), reading (R1 to R6), removing and counting (D1, D2, L1, L2), concurrency (C1 to C6),
/// opening and closing (O1 to O6), faults (F1 to F4), transactions (T1 to T5), change feeds (X1 to X5) and networks (N1 to N6).
/// ``EngineCapabilities`` are promises that an engine can make beyond the rules that hold for all engines.
///
/// A key is *absent* when there is no entry under it. A write is *acknowledged* once the call has returned without throwing.
public protocol StorageEngine: Sendable {
  /// What the engine promises beyond the rules that hold for all engines. Default: nothing.
  var capabilities: EngineCapabilities { get }

  /// Stores `data` under the key, replacing any existing value (rules W1, W2). **Required.**
  ///
  /// - Throws: ``StorageError`` with code `invalidKey`, `valueTooLarge`, `diskFull`, `readOnly`,
  ///   `permissionDenied`, `corrupted`, `closed` or `io`; `locked` if another process has been writing for too long (rule O5).
  ///   An engine on a server also throws `unavailable`, with nothing written, and `outcomeUnknown`, after which the value may
  ///   have been written (rule N2). `CancellationError` if the task was cancelled, with nothing written (rule C4).
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
  ///   wait for another process for too long (rule O5); `unavailable` from an engine on a server.
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

  /// Removes the entry under the key, if there is one (rule D1). **Required.** Throws as ``write(_:key:)``.
  func remove(key: CacheKey) async throws

  /// Removes the entries under the keys as one batch (rules D1, W4).
  ///
  /// Default: one by one, n calls for n keys. Throws as ``write(_:key:)``.
  func remove(keys: [CacheKey]) async throws

  /// Removes all entries (rule D2).
  ///
  /// Default: O(N), removes each of ``allKeys()``. Throws as ``write(_:key:)``.
  func removeAllData() async throws

  /// Whether there is an entry under the key.
  ///
  /// Default: whether ``createdAt(key:)`` is not nil. Throws as ``read(key:)``.
  func keyExists(_ key: CacheKey) async throws -> Bool

  /// The requested keys that exist, in the order of the request (rule L1).
  ///
  /// Default: one call of ``keyExists(_:)`` for each key. Throws as ``read(key:)``.
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey]

  /// The number of entries (rule L2).
  ///
  /// Default: O(N), counts ``allKeys()``. Throws as ``allKeys()``.
  func keyCount() async throws -> Int

  /// Every key, once, in no particular order (rule K3). **Required.**
  ///
  /// - Throws: as ``read(key:)``, except `invalidKey`.
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

  /// The entries of the requested keys that exist, each once, with their timestamps and in the order of ``readAllEntries()``.
  ///
  /// Default: O(n log n) for n keys, reads each entry and sorts by creation time, then by key. Throws as ``read(key:)``.
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry]

  /// Writes entries together with their timestamps, as one batch (rules W3, W4, R6). For moving data between engines.
  ///
  /// New keys are added after the existing ones, in the order given. An entry whose key exists is replaced, timestamps included,
  /// and keeps its position in the order; this is the only call after which ``updatedAt(key:)`` may be earlier than before. A
  /// later entry for the same key wins. Timestamps are stored with the precision of the engine's own. Timestamps that it cannot
  /// store, and a `createdAt` after the `updatedAt`, become the nearest that it can store, or are refused; the built-in engines
  /// refuse none.
  ///
  /// Default, for engines without the capability ``EngineCapabilities/preservesTimestamps``: writes the values as one batch,
  /// with the time of this call.
  ///
  /// - Throws: as ``write(_:key:)``. One invalid key means that nothing is written.
  func writeEntries(_ entries: [StorageEntry]) async throws

  /// Performs the operations in the order given, as one batch (rules W4, W5).
  ///
  /// Default: calls ``write(_:)`` or ``remove(keys:)`` if one of them can do all of it; otherwise validates every key, then
  /// performs the operations one by one. So an engine whose own ``write(_:)`` or ``remove(keys:)`` calls this method must implement
  /// it, too. Throws as ``write(_:key:)``.
  func apply(_ operations: [StorageOperation]) async throws

  /// The entries of a range in ascending byte order of keys, at most `limit` of them (rule R5).
  ///
  /// A limit of nil means no limit; zero or less means no entries. Default: O(N log N), sorts the keys of ``allKeys()`` that
  /// are in the range, then reads the values up to the limit.
  ///
  /// - Throws: as ``read(key:)``; `invalidKey` if a bound of the range is not a valid key.
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)]

  /// Reads and writes as if nothing else ran at the same time (rules T1 to T5). For engines with the capability
  /// ``EngineCapabilities/transactions``.
  ///
  /// ```swift
  /// let rest = try await engine.withTransaction { transaction in
  ///   let stock = try transaction.read(key: shelf).flatMap(Stock.init) ?? .empty
  ///   let rest = try stock.removing(order)         // throws if there is not enough; then nothing is changed
  ///   try transaction.write(rest.data, key: shelf)
  ///   return rest
  /// }
  /// ```
  ///
  /// The body is synchronous, so no transaction stays open while a task is suspended, and runs on a thread that may block.
  /// It may run more than once, and only the last run counts: it should change nothing but the transaction. While it runs,
  /// writes wait. It must not wait for another call to the engine.
  ///
  /// Default: throws `unsupported`.
  ///
  /// - Returns: what the body returned.
  /// - Throws: the error of the body, unchanged, with nothing written; ``StorageError`` with code `conflict`, with nothing
  ///   written, if the engine gives up because other callers change the same entries; otherwise as ``write(_:key:)``.
  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result

  /// A stream of all changes from now on, made by this engine, by another engine on the same place or by another process
  /// (rules X1 to X5). For engines with the capability ``EngineCapabilities/changeFeed``.
  ///
  /// Changes acknowledged before this returns can be read; changes acknowledged afterwards are in the stream. To miss nothing,
  /// subscribe first, then read. After receiving an element, a subscriber reads the change or a later state. A subscription costs
  /// nothing while nothing changes. A stream does not retain its engine: dropping the last reference to the engine releases
  /// everything, even while subscribers wait for changes (rule O4).
  ///
  /// Default: throws `unsupported`.
  ///
  /// - Throws: ``StorageError`` with code `closed`; `locked` if another process has been writing for too long; `io` or another
  ///   code if the system cannot watch the place; `CancellationError`.
  func changes() async throws -> StorageChanges

  /// Reads everything that is stored and throws if any of it is corrupted (rule F2). Changes nothing.
  ///
  /// O(N), and slower than reading all entries if the engine stores more than entries: checksums, trees, lists of free
  /// pages. It includes the checks that opening skips, so that the cost of opening does not depend on the number of entries
  /// (rule O6). Default: reads all entries.
  ///
  /// - Throws: ``StorageError`` with code `corrupted` whose message names what is corrupted; otherwise as ``read(key:)``.
  func verify() async throws

  /// Waits for calls in progress and releases the engine's resources (rule O3). Default: does nothing.
  ///
  /// - Throws: ``StorageError`` with code `io` or `diskFull` if acknowledged writes could not be written to the disk.
  func close() async throws
}
