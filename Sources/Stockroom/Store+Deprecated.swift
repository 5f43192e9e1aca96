import Foundation
import StockroomCore
import StockroomSQLite
import StockroomStore

// Former initializers and methods, for source compatibility.

extension Store {
  /// Creates a store with an SQLite database in a directory, and loads its items in the background.
  ///
  /// If the database cannot be opened, `itemsHaveLoaded()` and every change throw the error.
  @available(*, deprecated, message: "Use Store(storage: .sqlite(directory:), cacheIdentifier:)")
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(storagePath: URL, cacheIdentifier: KeyPath<Item, String>) {
    self.init(
      loadingInBackground: SQLiteStorageEngine.deferringErrors(directory: .init(url: storagePath)),
      cacheIdentifier: cacheIdentifier)
  }

  /// Creates a store with an SQLite database in a directory, and loads its items. O(N).
  ///
  /// - Throws: what the engine threw when it was opened or read.
  @available(*, deprecated, message: "Use Store(storage: .sqlite(directory:), cacheIdentifier:)")
  public convenience init(storagePath: URL, cacheIdentifier: KeyPath<Item, String>) async throws {
    try await self.init(
      storage: SQLiteStorageEngine(directory: .init(url: storagePath)), cacheIdentifier: cacheIdentifier)
  }

  /// A directory in the user's documents.
  @available(*, deprecated, message: "Use FileManager.Directory.documents(appendingPath:)")
  nonisolated public static func documentsDirectory(appendingPath path: String) -> URL {
    FileManager.Directory.documents(appendingPath: path).url
  }

  /// What happens to existing items when others are inserted.
  @available(*, deprecated, message: "Use a chain: store.removeAll().insert(items).run()")
  public enum InvalidationStrategy: Sendable {
    /// They are kept.
    case removeNone
    /// They are removed first.
    case removeAll
  }

  /// Inserts an item, after removing all others if the strategy is `removeAll`.
  @available(*, deprecated, message: "Use insert(_:), or a chain: store.removeAll().insert(item).run()")
  public func add(_ item: Item, invalidationStrategy: InvalidationStrategy) async throws {
    try await add([item], invalidationStrategy: invalidationStrategy)
  }

  /// Inserts items, after removing all others if the strategy is `removeAll`.
  @available(*, deprecated, message: "Use insert(_:), or a chain: store.removeAll().insert(items).run()")
  public func add(_ items: [Item], invalidationStrategy: InvalidationStrategy) async throws {
    switch invalidationStrategy {
    case .removeNone: try await insert(items)
    case .removeAll: try await removeAll().insert(items).run()
    }
  }
}

extension Store where Item == Data {
  /// A directory in the user's documents.
  @available(*, deprecated, message: "Use FileManager.Directory.documents(appendingPath:)")
  nonisolated public static func documentsDirectory(appendingPathComponent component: String) -> URL {
    FileManager.Directory.documents(appendingPath: component).url
  }
}
