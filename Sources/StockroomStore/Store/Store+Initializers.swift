import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

// There are three initializers for each of three kinds of identifiers. In an async context, Swift always picks an async initializer
// over a synchronous one with the same parameters, so for loading in the background there is an initializer with another label.
//
// Top-level code is async, but there Swift picks the synchronous initializer even after `try await`, which would create a store
// without its items. `noasync` makes that an error.

extension Store {
  /// Creates a store that loads its items in the background. Wait for them with ``itemsHaveLoaded()``.
  ///
  /// If loading fails, ``loadingState`` contains the error, and ``itemsHaveLoaded()`` and changes throw it: with the code of the
  /// engine's error, or with `unsupported` if a store of another type of item uses this engine.
  ///
  /// In an async function Swift picks the async initializer instead, which requires `try await`; to load in the background
  /// there, use ``init(loadingInBackground:cacheIdentifier:codec:)``. In top-level code with an `await` this initializer is
  /// unavailable.
  ///
  /// - Parameters:
  ///   - storage: The engine that stores the items.
  ///   - cacheIdentifier: The identifier of an item, a text of any length and content (rule S8). It is read on any thread,
  ///     so the property must not be isolated to an actor.
  ///   - codec: Converts items to bytes.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(
    storage: some StorageEngine, cacheIdentifier: KeyPath<Item, String>, codec: some Codec = JSONCodec()
  ) {
    self.init(loadingInBackground: storage, cacheIdentifier: cacheIdentifier, codec: codec)
  }

  /// Creates a store and loads its items. O(N).
  ///
  /// - Throws: what the engine threw when the items were read; `StorageError` with code `unsupported` if a store of another type of
  ///   item uses this engine; `CancellationError`.
  public convenience init(
    storage: some StorageEngine, cacheIdentifier: KeyPath<Item, String>, codec: some Codec = JSONCodec()
  ) async throws {
    self.init(loadingInBackground: storage, cacheIdentifier: cacheIdentifier, codec: codec)
    try await itemsHaveLoaded()
  }

  /// Creates a store that loads its items in the background, also in an async function.
  ///
  /// If loading fails, ``loadingState`` contains the error, and ``itemsHaveLoaded()`` and changes throw it.
  public convenience init(
    loadingInBackground storage: some StorageEngine, cacheIdentifier: KeyPath<Item, String>,
    codec: some Codec = JSONCodec()
  ) {
    // Safe to share: a key path is immutable, and the property is not isolated to an actor, as required above.
    nonisolated(unsafe) let cacheIdentifier = cacheIdentifier
    self.init(
      backend: StoreBackend(engine: storage, codec: codec, identifier: { $0[keyPath: cacheIdentifier] }))
  }
}

extension Store where Item: Identifiable, Item.ID: LosslessStringConvertible {
  /// Creates a store that identifies items by their `id`, a `String`, `Int` or any other `LosslessStringConvertible`, and
  /// loads them in the background. Wait for them with ``itemsHaveLoaded()``.
  ///
  /// If loading fails, ``loadingState`` contains the error, and ``itemsHaveLoaded()`` and changes throw it.
  ///
  /// In an async function Swift picks the async initializer instead, which requires `try await`; to load in the
  /// background there, use `init(loadingInBackground:codec:)`.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(loadingInBackground: storage, codec: codec)
  }

  /// Creates a store that identifies items by their `id`, and loads them. O(N).
  ///
  /// - Throws: what the engine threw when the items were read; `StorageError` with code `unsupported` if a store of another type of
  ///   item uses this engine; `CancellationError`.
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) async throws {
    self.init(loadingInBackground: storage, codec: codec)
    try await itemsHaveLoaded()
  }

  /// Creates a store that identifies items by their `id` and loads them in the background, also in an async function.
  ///
  /// If loading fails, ``loadingState`` contains the error, and ``itemsHaveLoaded()`` and changes throw it.
  public convenience init(loadingInBackground storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(backend: StoreBackend(engine: storage, codec: codec, identifier: { $0.id.description }))
  }
}

extension Store where Item: Identifiable, Item.ID == UUID {
  /// Creates a store that identifies items by their `id`, a `UUID`, and loads them in the background. Wait for them with
  /// ``itemsHaveLoaded()``.
  ///
  /// If loading fails, ``loadingState`` contains the error, and ``itemsHaveLoaded()`` and changes throw it.
  ///
  /// In an async function Swift picks the async initializer instead, which requires `try await`; to load in the
  /// background there, use `init(loadingInBackground:codec:)`.
  @available(
    *, noasync,
    message: "use `try await Store(…)` in an async function, or Store(loadingInBackground:)"
  )
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(loadingInBackground: storage, codec: codec)
  }

  /// Creates a store that identifies items by their `id`, a `UUID`, and loads them. O(N).
  ///
  /// - Throws: what the engine threw when the items were read; `StorageError` with code `unsupported` if a store of another type of
  ///   item uses this engine; `CancellationError`.
  public convenience init(storage: some StorageEngine, codec: some Codec = JSONCodec()) async throws {
    self.init(loadingInBackground: storage, codec: codec)
    try await itemsHaveLoaded()
  }

  /// Creates a store that identifies items by their `id`, a `UUID`, and loads them in the background, also in an async
  /// function.
  ///
  /// If loading fails, ``loadingState`` contains the error, and ``itemsHaveLoaded()`` and changes throw it.
  public convenience init(loadingInBackground storage: some StorageEngine, codec: some Codec = JSONCodec()) {
    self.init(backend: StoreBackend(engine: storage, codec: codec, identifier: { $0.id.uuidString }))
  }
}

extension Store where Item: Identifiable, Item.ID: LosslessStringConvertible {
  /// The item with this `id`, if there is one. O(log N). For stores that identify items by their `id`.
  public subscript(_ id: Item.ID) -> Item? { item(identifier: id.description) }

  /// Whether there is an item with this `id`. O(1). For stores that identify items by their `id`.
  public func contains(id: Item.ID) -> Bool { containsItem(identifier: id.description) }
}

extension Store where Item: Identifiable, Item.ID == UUID {
  /// The item with this `id`, if there is one. O(log N). For stores that identify items by their `id`.
  public subscript(_ id: UUID) -> Item? { item(identifier: id.uuidString) }

  /// Whether there is an item with this `id`. O(1). For stores that identify items by their `id`.
  public func contains(id: UUID) -> Bool { containsItem(identifier: id.uuidString) }
}
