#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A place that keeps values under keys.
///
/// An engine is anything that can keep bytes: a dictionary, a directory, a database, a service. All engines
/// keep the same contract, so that exchanging one for another changes speed and deployment, never behaviour.
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
/// A key is *absent* when there is no entry under it. A write is *acknowledged* once the call has returned
/// without throwing.
///
/// **Keys.**
/// - K1: A key has 1 to 511 bytes of UTF-8. Any other makes every method that takes it throw
///   ``StorageError/Code/invalidKey``, and nothing is written.
/// - K2: Keys are compared byte for byte. Case, blanks, accents and how they are composed, NUL, `/`, `..`, `%`:
///   all of it counts, all of it is allowed.
/// - K3: ``allKeys()`` gives back the keys that were written, byte for byte, each once.
/// - K4: No key reaches anything outside the place that the engine was opened on.
///
/// **Values.**
/// - V1: Zero bytes are a value; that is not the same as absent.
/// - V2: Any bytes come back as written, and 64 MiB always fit. What is too large for an engine throws
///   ``StorageError/Code/valueTooLarge`` and leaves the entry as it was.
/// - V3: A returned `Data` starts at index 0 and never changes, whatever happens to the engine.
///
/// **Writing.**
/// - W1: A read after an acknowledged write returns just that value. A second write replaces all of it.
/// - W2: ``createdAt(key:)`` is when the key went from absent to present, ``updatedAt(key:)`` when it was last
///   written, both within 2 ms of the call, the former never after the latter. The latter never moves backwards, even
///   if the clock does. Writing the value that is there already is a write.
/// - W3: In a batch a later entry for a key wins over an earlier one. An empty batch does nothing.
/// - W4: One invalid key rejects its whole batch. With ``EngineCapabilities/atomicBatches`` a batch, of whatever size,
///   is all or nothing: after an error, after a crash, and for every reader.
/// - W5: ``apply(_:)`` does its operations in the order given, as one batch.
/// - W6: An acknowledged write survives the death of the process (``EngineCapabilities/persistent``) and, at
///   ``Durability/full``, of the machine (``EngineCapabilities/durableWrites``). At ``Durability/process`` the death of
///   the machine may cost the last batches, each as a whole; the place opens all the same.
///
/// **Reading.**
/// - R1: Absent is nil.
/// - R2: A read of many keys answers in the order of the request, without the absent ones, and twice for a key
///   named twice. A million keys are an ordinary request.
/// - R3: A read of everything has each entry once. With ``EngineCapabilities/snapshotReads`` it shows one moment.
/// - R4: What cannot be read throws. Neither nil nor an empty array ever means that something failed.
/// - R5: ``scan(_:limit:)`` goes in ascending byte order of keys. With ``EngineCapabilities/orderedScans`` it
///   loads no more than it returns.
/// - R6: ``readAllEntries()`` is in the order in which the keys were first written.
///
/// **Removing and counting.**
/// - D1: Removing what is absent does nothing.
/// - D2: ``removeAllData()`` leaves an empty, usable engine, and removes nothing that the engine did not write.
/// - L1: ``keysExist(_:)`` gives those keys of the request that exist, in its order.
/// - L2: ``keyCount()`` is the number of keys in ``allKeys()``.
///
/// **Concurrency.**
/// - C1: Any number of tasks may call anything at any time, and every call takes effect at one moment between
///   its beginning and its end.
/// - C2: Opening a place twice in one process gives two engines that see each other's writes, or throws
///   ``StorageError/Code/locked``.
/// - C3: So does opening it in two processes, the former only with ``EngineCapabilities/multiProcess``.
/// - C4: A cancelled call has done all of its work or none, and throws `CancellationError` only if none.
/// - C5: Waiting for a disk or a network never holds a thread of Swift's cooperative pool. While every processor reads
///   everything in a loop, a write still has its turn within a second.
/// - C6: An engine whose place is deleted, moved or replaced acknowledges nothing that a new opening would not see,
///   returns nothing that is not there, and harms nobody who has opened the place since: it throws
///   ``StorageError/Code/io``, or follows to what is there now.
///
/// **Opening and closing.**
/// - O1: Opening makes the directories that are missing.
/// - O2: Opening on something unusable throws a ``StorageError`` that names path and cause, and touches nothing.
/// - O3: ``close()`` waits for what is under way and may be called twice; every later call throws
///   ``StorageError/Code/closed``. An engine that keeps nothing beyond its own life may leave it to the default.
/// - O4: Dropping the last reference releases every lock and file descriptor, closed or not.
/// - O5: What an engine makes belongs to its owner alone (0600, 0700), unless it is told otherwise. Nothing planted in
///   the place makes it write elsewhere or hang, and nobody who may only read holds it up for longer than a minute,
///   after which it throws ``StorageError/Code/locked``.
/// - O6: Opening costs no more with a million entries than with a thousand.
///
/// **Faults.**
/// - F1: On a full disk a write throws ``StorageError/Code/diskFull`` and leaves no trace; what was there stays
///   readable, and writing works again once there is room.
/// - F2: A damaged header, a truncated file or a file of another kind throws ``StorageError/Code/corrupted``. With
///   ``EngineCapabilities/detectsCorruption`` damage anywhere does, unless the value is the right one all the same. What
///   only a look at every page can find belongs to ``verify()``.
/// - F3: On read-only media opening or writing throws ``StorageError/Code/readOnly`` or
///   ``StorageError/Code/permissionDenied``.
/// - F4: What the system refuses in the middle of a call (an immutable file, a quota, a permission taken away) leaves
///   the call undone, all entries readable, and the engine usable.
public protocol StorageEngine: Sendable {
  /// What the engine promises beyond the rules that all engines keep. Default: nothing.
  var capabilities: EngineCapabilities { get }

  /// Makes `data` the value of the key, whether or not it had one (rules W1, W2). **Required.**
  ///
  /// - Throws: ``StorageError`` with code `invalidKey`, `valueTooLarge`, `diskFull`, `readOnly`,
  ///   `permissionDenied`, `corrupted`, `closed` or `io`.
  func write(_ data: Data, key: CacheKey) async throws

  /// Writes many entries as one batch; a later entry for the same key wins (rules W3, W4).
  ///
  /// Default: writes them one by one.
  ///
  /// - Throws: as ``write(_:key:)``. One invalid key means that nothing is written.
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws

  /// The value of the key, or nil if it is absent (rules R1, R4). **Required.**
  ///
  /// - Throws: ``StorageError`` with code `invalidKey`, `corrupted`, `permissionDenied`, `closed` or `io`.
  func read(key: CacheKey) async throws -> Data?

  /// The values of the keys that exist, in the order of the request, repeats included (rule R2).
  ///
  /// Default: one read for each key. Throws as ``read(key:)``.
  func read(keys: [CacheKey]) async throws -> [Data]

  /// The keys that exist with their values, in the order of the request, repeats included (rule R2).
  ///
  /// Default: one read for each key. Throws as ``read(key:)``.
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)]

  /// Every value, once, in no particular order (rule R3).
  ///
  /// Default: one read for each key. Throws as ``read(key:)``.
  func readAllData() async throws -> [Data]

  /// Every key with its value, once, in no particular order (rule R3).
  ///
  /// Default: one read for each key. Throws as ``read(key:)``.
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)]

  /// Makes the key absent, whether or not it had a value (rule D1). **Required.** Throws as ``write(_:key:)``.
  func remove(key: CacheKey) async throws

  /// Makes all of the keys absent, as one batch (rules D1, W4).
  ///
  /// Default: one by one. Throws as ``write(_:key:)``.
  func remove(keys: [CacheKey]) async throws

  /// Makes every key absent (rule D2).
  ///
  /// Default: removes each of ``allKeys()``. Throws as ``write(_:key:)``.
  func removeAllData() async throws

  /// Whether there is an entry under the key.
  ///
  /// Default: whether it has a ``createdAt(key:)``. Throws as ``read(key:)``.
  func keyExists(_ key: CacheKey) async throws -> Bool

  /// Those of the keys that exist, in the order of the request (rule L1).
  ///
  /// Default: one question for each key. Throws as ``read(key:)``.
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey]

  /// The number of entries (rule L2).
  ///
  /// Default: counts ``allKeys()``. Throws as ``allKeys()``.
  func keyCount() async throws -> Int

  /// Every key, once, in no particular order (rule K3). **Required.**
  ///
  /// - Throws: ``StorageError`` with code `corrupted`, `permissionDenied`, `closed` or `io`.
  func allKeys() async throws -> [CacheKey]

  /// When the key went from absent to present, or nil if it is absent (rule W2). **Required.** Throws as
  /// ``read(key:)``.
  func createdAt(key: CacheKey) async throws -> Date?

  /// When the key was last written, or nil if it is absent (rule W2). **Required.** Throws as ``read(key:)``.
  func updatedAt(key: CacheKey) async throws -> Date?

  /// Every entry with its timestamps, in the order in which the keys were first written (rule R6).
  ///
  /// Default: reads each entry and sorts by creation time, then by key. Throws as ``read(key:)``.
  func readAllEntries() async throws -> [StorageEntry]

  /// Does the operations in the order given, as one batch (rules W4, W5).
  ///
  /// Default: one by one, once every key has been found valid. Throws as ``write(_:key:)``.
  func apply(_ operations: [StorageOperation]) async throws

  /// The entries of a range in ascending byte order of keys, at most `limit` of them (rule R5).
  ///
  /// Nil means no limit; zero and less mean no entries. Default: sorts those of ``allKeys()`` that are in the
  /// range, then reads as many as are asked for.
  ///
  /// - Throws: as ``read(key:)``; `invalidKey` if a bound of the range is no valid key.
  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)]

  /// Reads everything that is stored, and throws if anything of it is damaged (rule F2). Changes nothing.
  ///
  /// O(N), and more than a read of all entries where an engine keeps more than entries: checksums, trees, lists of free
  /// pages. What opening does not look at, so that it costs the same with a million entries as with a thousand (rule
  /// O6), this does. Default: reads all entries.
  ///
  /// - Throws: ``StorageError`` with code `corrupted` that names what is damaged; otherwise as ``read(key:)``.
  func verify() async throws

  /// Waits for what is under way and releases what the engine holds (rule O3). Default: does nothing.
  ///
  /// - Throws: ``StorageError`` with code `io` or `diskFull` if what was acknowledged could not be put away.
  func close() async throws
}
