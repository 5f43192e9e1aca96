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
  /// Entries are decoded in portions of so many, or of so many bytes, after each of which progress is reported.
  private static var portion: (entries: Int, bytes: Int) { (4_096, 16 << 20) }

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
    // Reversed, so that portions can be taken off its end.
    var entries = try await engine.readAllEntries()
    entries.reverse()
    let total = entries.count
    loaded.table.reserveCapacity(total)
    while !entries.isEmpty {
      let portion = Self.takePortion(of: &entries)
      let decoded = try await parallelMap(consume portion, minimum: 2) { item(of: $0) }
      for (key, result) in decoded {
        switch result {
        case .success(let item): loaded.table.insert(item, for: key)
        case .failure(let error): loaded.unreadable.append(UnreadableEntry(key: key, error: error))
        }
      }
      if total > Self.portion.entries || !entries.isEmpty { await progress(total - entries.count, total) }
    }
    return loaded
  }

  private static func takePortion(of entries: inout [StorageEntry]) -> [StorageEntry] {
    var taken: [StorageEntry] = []
    var bytes = 0
    while taken.count < portion.entries, bytes < portion.bytes, let entry = entries.popLast() {
      bytes += entry.data.count
      taken.append(entry)
    }
    return taken
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
