import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Consecutive items, up to an unreadable entry.
private struct DecodedRun<Item: StorableItem>: Sendable {
  /// The key of each item, with the identifier as its raw value.
  var keys: [CacheKey] = []
  var items: [Item] = []
  /// The unreadable entry after them.
  var unreadable: UnreadableEntry?
}

extension StoreBackend {
  /// The number of entries between two reports of progress.
  private static var entriesBetweenReports: Int { 4_096 }

  /// Reads all entries, in the order in which they were first written, and decodes them in parallel.
  ///
  /// The bytes of an entry are released when it has been decoded, so that not all bytes and all items are in memory at the
  /// same time.
  ///
  /// - Throws: what the engine threw. Does not throw for an entry that cannot be decoded (rule S6).
  @concurrent
  func load(
    progress: @MainActor @Sendable (_ completed: Int, _ total: Int) -> Void
  ) async throws -> ItemTable<Item> {
    var loaded = ItemTable<Item>()
    guard let engine else { return loaded }
    let entries = try await engine.readAllEntries()
    let total = entries.count
    // With spare capacity, so that the first insertion does not copy all of them.
    loaded.reserveCapacity(total + total / 8)
    var completed = 0
    var reported = 0
    // Even two entries are decoded in parallel, since they may be large.
    try await transformPortions(of: consume entries, minimum: 2) {
      try decode($0)
    } receive: { runs in
      for run in runs {
        loaded.append(run.items, keys: run.keys)
        completed += run.items.count
        guard let entry = run.unreadable else { continue }
        loaded.append(entry)
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

  /// The items of entries, in order.
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
        let item = try codec.decode(Item.self, from: entry.data, of: entry.key)
        run.keys.append(try key(of: item, in: entry))
        run.items.append(item)
      } catch {
        run.unreadable = UnreadableEntry(key: entry.key, error: error)
        runs.append(run)
        run = DecodedRun()
      }
    }
    return runs + [run]
  }

  /// The key of an item, which must be that of its entry.
  private func key(of item: Item, in entry: StorageEntry) throws(StorageError) -> CacheKey {
    let key = CacheKey(identifier: identifier(item))
    guard key == entry.key else {
      throw StorageError(
        .decodingFailed, "The entry \(entry.key) contains an item whose identifier has the key \(key).")
    }
    return key
  }
}
