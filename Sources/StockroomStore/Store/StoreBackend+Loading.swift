import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Consecutive items up to the next unreadable entry, or to the end.
private struct DecodedRun<Item: StorableItem>: Sendable {
  /// The key of each item, with the identifier as its raw value.
  var keys: [CacheKey] = []
  var items: [Item] = []
  var sequences: [Int] = []
  /// The unreadable entry after them, and its sequence number.
  var unreadable: (entry: UnreadableEntry, sequence: Int)?
}

extension StoreBackend {
  /// The number of entries between two reports of progress.
  private static var entriesBetweenReports: Int { 4_096 }

  /// Reads all entries, in the order in which they were first written, and decodes them in parallel.
  ///
  /// The bytes of an entry are released when it has been decoded, so that not all bytes and all items are in memory at the
  /// same time.
  ///
  /// - Parameter start: When the load began. The feed may report changes by others after this time although the load has read them.
  /// - Throws: what the engine threw. Does not throw for an entry that cannot be decoded (rule S6).
  @concurrent
  func load(
    since start: Timestamp, progress: @MainActor @Sendable (_ completed: Int, _ total: Int) -> Void
  ) async throws -> ItemTable<Item> {
    var loaded = ItemTable<Item>()
    guard let engine else { return loaded }
    var entries = try await engine.readAllEntries()
    // Decoding records the entries of old versions again.
    versions.forgetOld()
    loaded.recent = EntryStamp.recent(entries, since: start)
    loaded.hasEngineOrder = Self.numberIfNeeded(&entries)
    let total = entries.count
    // Spare capacity, so that the first insertion does not copy all items.
    loaded.reserveCapacity(total + total / 8)
    var completed = 0
    var reported = 0
    // Even two entries are decoded in parallel, since they may be large.
    try await transformPortions(of: consume entries, minimum: 2) {
      try decode($0)
    } receive: { runs in
      for run in runs {
        loaded.append(run.items, keys: run.keys, sequences: run.sequences)
        completed += run.items.count
        guard let (entry, sequence) = run.unreadable else { continue }
        loaded.append(entry, sequence: sequence)
        completed += 1
      }
      if completed - reported >= Self.entriesBetweenReports {
        reported = completed
        await progress(completed, total)
      }
    }
    loaded.endAppending()
    return loaded
  }

  /// Decodes entries, in order. Does not throw for an unreadable entry, which ends a run.
  ///
  /// - Throws: `CancellationError`.
  private func decode(_ entries: [StorageEntry]) throws -> [DecodedRun<Item>] {
    var runs: [DecodedRun<Item>] = []
    var run = DecodedRun<Item>()
    run.keys.reserveCapacity(entries.count)
    run.items.reserveCapacity(entries.count)
    for entry in entries {
      try Task.checkCancellation()
      do throws(StorageError) {
        let (key, item) = try item(in: entry)
        run.keys.append(key)
        run.items.append(item)
        run.sequences.append(Int(entry.sequence ?? 0))
      } catch {
        run.unreadable = (UnreadableEntry(key: entry.key, error: error), Int(entry.sequence ?? 0))
        runs.append(run)
        run = DecodedRun()
      }
    }
    return runs + [run]
  }

  /// The item in an entry, and its key, which must match that of the entry.
  func item(in entry: StorageEntry) throws(StorageError) -> (key: CacheKey, item: Item) {
    let item = try decoded(entry)
    let key = CacheKey(identifier: identifier(item))
    try verify(key, in: entry.key)
    if codec.isOld(entry.data) { versions.noteOld(key) }
    return (key, item)
  }

  /// Throws unless the key of an item matches that of its entry.
  func verify(_ key: CacheKey, in entry: CacheKey) throws(StorageError) {
    if key == entry { return }
    throw StorageError(
      .decodingFailed, "The entry \(entry) contains an item whose identifier has the key \(key).")
  }

  /// The sequence number of an entry. Nil if the engine provides none, or if the number is so large that it must be corrupted and
  /// counting on from it could overflow.
  static func sequence(of entry: StorageEntry) -> Int? {
    entry.sequence.flatMap { $0 < Int.max / 2 ? Int($0) : nil }
  }

  /// Numbers the entries if the engine does not number them, or not in ascending order. Returns whether the numbers are the
  /// engine's.
  private static func numberIfNeeded(_ entries: inout [StorageEntry]) -> Bool {
    var last: Int?
    let isNumbered = entries.allSatisfy { entry in
      guard let sequence = Self.sequence(of: entry), last.map({ $0 < sequence }) ?? true else { return false }
      last = sequence
      return true
    }
    if !isNumbered { for index in entries.indices { entries[index].sequence = UInt64(index) } }
    return isNumbered
  }
}
