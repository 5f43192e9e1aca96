import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// Three ways to make a store, for each of three ways to tell items apart. In an async context Swift always picks an
// async initialiser over its namesake that is not, so there the one that loads in the background has a name of its own.
//
// Code at the top level of a program is async and yet no such context: there Swift picks the namesake that is not, even
// behind `try await`, which would be a store without its items. `noasync` makes that an error.

extension Store {
  /// A store that loads its items in the background. Wait for them with ``itemsHaveLoaded()``.
  ///
  /// In an async function Swift picks its namesake that is async instead, which wants
  /// `try await`; to load in the background there, use ``init(loadingInBackground:cacheIdentifier:codec:)``. At the top
  /// level of a program that has an `await`, Swift sees only this one, and says that it is unavailable.
  ///
  /// - Parameters:
  ///   - storage: The engine that keeps the items.
  ///   - cacheIdentifier: What tells items apart. Any text will do, however long (rule S8). It is read on any thread, so
  ///     not a property that belongs to an actor.
  ///   - codec: How items become bytes.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(
    storage: some StorageEngine, cacheIdentifier: KeyPath<Item, String>, codec: some Codec = JSONCodec()
  ) {
    self.init(loadingInBackground: storage, cacheIdentifier: cacheIdentifier, codec: codec)
  }

  /// A store whose items have been loaded. O(N).
  ///
  /// - Throws: what the engine threw when the items were read.
  public convenience init(
    storage: some StorageEngine, cacheIdentifier: KeyPath<Item, String>, codec: some Codec = JSONCodec()
  ) async throws {
    self.init(loadingInBackground: storage, cacheIdentifier: cacheIdentifier, codec: codec)
    try await itemsHaveLoaded()
  }

  /// A store that loads its items in the background, by a name that an async function can use as well.
  public convenience init(
    loadingInBackground storage: some StorageEngine, cacheIdentifier: KeyPath<Item, String>,
    codec: some Codec = JSONCodec()
  ) {
    // Safe to share: a key path never changes, and what it leads to belongs to no actor, as is asked for above.
    nonisolated(unsafe) let cacheIdentifier = cacheIdentifier
    self.init(
      backend: StoreBackend(engine: storage, codec: codec, identifier: { $0[keyPath: cacheIdentifier] }))
  }
}

extension Store where Item: Identifiable, Item.ID: LosslessStringConvertible {
  /// A store that tells items apart by their `id`, a `String`, an `Int` or what else is `LosslessStringConvertible`, and
  /// loads them in the background. Wait for them with ``itemsHaveLoaded()``.
  ///
  /// In an async function Swift picks the async initialiser instead, which wants `try await`; to load in the
  /// background there, use `init(loadingInBackground:codec:)`.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(loadingInBackground: storage, codec: codec)
  }

  /// A store that tells items apart by their `id`, and whose items have been loaded. O(N).
  ///
  /// - Throws: what the engine threw when the items were read.
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) async throws {
    self.init(loadingInBackground: storage, codec: codec)
    try await itemsHaveLoaded()
  }

  /// A store that tells items apart by their `id` and loads them in the background, by a name that an async
  /// function can use as well.
  public convenience init(loadingInBackground storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(backend: StoreBackend(engine: storage, codec: codec, identifier: { $0.id.description }))
  }
}

extension Store where Item: Identifiable, Item.ID == UUID {
  /// A store that tells items apart by the text of their `id` and loads them in the background. Wait for them with
  /// ``itemsHaveLoaded()``.
  ///
  /// In an async function Swift picks the async initialiser instead, which wants `try await`; to load in the
  /// background there, use `init(loadingInBackground:codec:)`.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(loadingInBackground: storage, codec: codec)
  }

  /// A store that tells items apart by the text of their `id`, and whose items have been loaded. O(N).
  ///
  /// - Throws: what the engine threw when the items were read.
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) async throws {
    self.init(loadingInBackground: storage, codec: codec)
    try await itemsHaveLoaded()
  }

  /// A store that tells items apart by the text of their `id` and loads them in the background, by a name that an
  /// async function can use as well.
  public convenience init(loadingInBackground storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(backend: StoreBackend(engine: storage, codec: codec, identifier: { $0.id.uuidString }))
  }
}
