import Foundation
import StockroomCore
import StockroomSQLite
import StockroomStore

extension Store {
  /// Creates a store with an SQLite database of its own, and loads its items in the background.
  ///
  /// The database is in the directory `<program>/Stockroom/Stores/<type of item>` in the default storage directory, and is
  /// opened before this returns. After the type is renamed, the store is empty; to be independent of the name, specify a
  /// directory: `Store(storage: .sqlite(directory: …))`.
  ///
  /// If the database cannot be opened, `itemsHaveLoaded()` and every change throw the error. If another private or local
  /// type of the same name uses the directory, they throw `StorageError.Code.unsupported`. In an async function, Swift
  /// picks the async initializer instead, which requires `try await`.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(cacheIdentifier: KeyPath<Item, String>) {
    self.init(storage: Self.defaultDatabase, cacheIdentifier: cacheIdentifier)
  }

  /// Creates a store with an SQLite database of its own, named after the type of item, and loads its items. O(N).
  ///
  /// - Throws: what the engine threw when it was opened or read; `StorageError` with code `unsupported` if another private or local
  ///   type of the same name uses the directory; `CancellationError`.
  public convenience init(cacheIdentifier: KeyPath<Item, String>) async throws {
    try await self.init(storage: Self.defaultDatabase, cacheIdentifier: cacheIdentifier)
  }

  /// The database of this type of item.
  ///
  /// Each type has its own, since items of two types in one database could have the same keys.
  fileprivate static var defaultDatabase: SQLiteStorageEngine {
    .deferringErrors(
      directory: .defaultStorageDirectory.ofProgram.appending("Stores")
        .appending(try TypeNameRegistry.directoryName(for: Item.self)))
  }
}

extension Store where Item: Identifiable, Item.ID: LosslessStringConvertible {
  /// Creates a store that identifies items by their `id`, with an SQLite database of its own, named after the type of
  /// item, and loads them in the background.
  ///
  /// If the database cannot be opened or read, `itemsHaveLoaded()` and every change throw the error.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init() { self.init(storage: Self.defaultDatabase) }

  /// Creates a store that identifies items by their `id`, with an SQLite database of its own, named after the type of
  /// item, and loads them. O(N).
  ///
  /// - Throws: what the engine threw when it was opened or read; `StorageError` with code `unsupported` if another private or local
  ///   type of the same name uses the directory; `CancellationError`.
  public convenience init() async throws { try await self.init(storage: Self.defaultDatabase) }
}

extension Store where Item: Identifiable, Item.ID == UUID {
  /// Creates a store that identifies items by their `id`, a `UUID`, with an SQLite database of its own, named after the
  /// type of item, and loads them in the background.
  ///
  /// If the database cannot be opened or read, `itemsHaveLoaded()` and every change throw the error.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init() { self.init(storage: Self.defaultDatabase) }

  /// Creates a store that identifies items by their `id`, a `UUID`, with an SQLite database of its own, named after the
  /// type of item, and loads them. O(N).
  ///
  /// - Throws: what the engine threw when it was opened or read; `StorageError` with code `unsupported` if another private or local
  ///   type of the same name uses the directory; `CancellationError`.
  public convenience init() async throws { try await self.init(storage: Self.defaultDatabase) }
}
