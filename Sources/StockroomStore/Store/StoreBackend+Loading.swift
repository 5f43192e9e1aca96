import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What an engine held when a store was loaded.
struct LoadedItems<Item: StorableItem>: Sendable {
  var table = ItemTable<Item>()
  var unreadable: [UnreadableEntry] = []
}

extension StoreBackend {
  /// Progress is reported after so many entries.
  private static var entriesBetweenReports: Int { 4_096 }

  /// Reads all entries, in the order in which they were first written, and decodes them on all processors.
  ///
  /// The bytes of an entry are let go of when it has been decoded, so that not all bytes and all items are in memory
  /// together.
  ///
  /// - Throws: what the engine threw. An entry that cannot be decoded is no reason to (rule S6).
  @concurrent
  func load(
    progress: @MainActor @Sendable (_ completed: Int, _ total: Int) -> Void
  ) async throws -> LoadedItems<Item> {
    var loaded = LoadedItems<Item>()
    guard let engine else { return loaded }
    let entries = try await engine.readAllEntries()
    let total = entries.count
    loaded.table.reserveCapacity(total)
    var completed = 0
    var reported = 0
    // Decoding even two entries may be worth distributing, since they may be large.
    try await transformInParallel(consume entries, minimum: 2) {
      item(of: $0)
    } receive: { decoded in
      for (key, result) in decoded {
        switch result {
        case .success(let item): loaded.table.insert([(key, item)])
        case .failure(let error):
          // What is inserted under its key later has its place in the engine's order.
          loaded.table.reservePlace(for: key)
          loaded.unreadable.append(UnreadableEntry(key: key, error: error))
        }
      }
      completed += decoded.count
      if completed - reported >= Self.entriesBetweenReports {
        reported = completed
        await progress(completed, total)
      }
    }
    return loaded
  }

  /// The item of an entry and its key, which then remembers the identifier.
  private func item(of entry: StorageEntry) -> (CacheKey, Result<Item, StorageError>) {
    do throws(StorageError) {
      let item = try codec.decode(Item.self, from: entry.data, of: entry.key)
      let key = CacheKey(identifier: identifier(item))
      guard key == entry.key else {
        throw StorageError(
          .decodingFailed, "The entry \(entry.key) holds an item whose identifier belongs under \(key).")
      }
      return (key, .success(item))
    } catch {
      return (entry.key, .failure(error))
    }
  }
}
