import Foundation
import StockroomCore
import StockroomSQLite
import StockroomStore

extension Store {
  /// A store that keeps its items in an SQLite database of its own and loads them in the background.
  ///
  /// The database is in a directory of the program's own, `<program>/Stockroom/Stores/<type of item>` in the
  /// default storage directory, and is opened before this returns. A type that is renamed begins with an empty
  /// store; to be independent of the name, say where the items belong: `Store(storage: .sqlite(directory: …))`.
  ///
  /// If the database cannot be opened, `itemsHaveLoaded()` and every change throw the reason. So they do, with code
  /// `StorageError.Code.unsupported`, if another type of the same name has the place: two private or local types. In an
  /// async function Swift picks the async initialiser instead, which wants `try await`.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(cacheIdentifier: KeyPath<Item, String>) {
    self.init(storage: Self.defaultDatabase, cacheIdentifier: cacheIdentifier)
  }

  /// A store that keeps its items in an SQLite database of its own, named after the type of item, and has loaded
  /// them. O(N).
  ///
  /// - Throws: what the engine threw when it was opened or read.
  public convenience init(cacheIdentifier: KeyPath<Item, String>) async throws {
    try await self.init(storage: Self.defaultDatabase, cacheIdentifier: cacheIdentifier)
  }

  /// The database of the stores of this type of item.
  ///
  /// Each type has its own, since two types in one database would take each other's places.
  fileprivate static var defaultDatabase: SQLiteStorageEngine {
    .deferringErrors(
      directory: .defaultStorageDirectory.ofProgram.appending("Stores")
        .appending(try PlacesOfTypes.directoryName(for: Item.self)))
  }
}

extension Store where Item: Identifiable, Item.ID: LosslessStringConvertible {
  /// A store that tells items apart by their `id`, keeps them in an SQLite database of its own, named after the
  /// type of item, and loads them in the background.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init() { self.init(storage: Self.defaultDatabase) }

  /// A store that tells items apart by their `id`, keeps them in an SQLite database of its own, named after the
  /// type of item, and has loaded them. O(N).
  ///
  /// - Throws: what the engine threw when it was opened or read.
  public convenience init() async throws { try await self.init(storage: Self.defaultDatabase) }
}

extension Store where Item: Identifiable, Item.ID == UUID {
  /// A store that tells items apart by the text of their `id`, keeps them in an SQLite database of its own, named
  /// after the type of item, and loads them in the background.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init() { self.init(storage: Self.defaultDatabase) }

  /// A store that tells items apart by the text of their `id`, keeps them in an SQLite database of its own, named
  /// after the type of item, and has loaded them. O(N).
  ///
  /// - Throws: what the engine threw when it was opened or read.
  public convenience init() async throws { try await self.init(storage: Self.defaultDatabase) }
}
