import StockroomCore

// Each change has two overloads: one that takes effect, and one that begins a chain. Swift picks the second one only if another
// call is chained to it. The second one is async too. If it were synchronous, contexts that prefer synchronous functions, such as
// top-level code, would pick it, and the change would have no effect.

extension Store {
  /// Appends an item, or replaces the one with its identifier in place (rule S4).
  ///
  /// O(1) in the number of items. Returns when the engine has acknowledged the change.
  ///
  /// If the items could not be loaded, each change tries to load them once. The first item that a store inserts is also decoded
  /// again, to verify that its identifier survives encoding.
  ///
  /// - Throws: what the engine threw; `StorageError` with code `encodingFailed`, including if the identifier
  ///   of an item does not survive encoding; with `unsupported` if another item's identifier has the same
  ///   hash, or a newer program has stored the entry; with the code of the failure if the items could not be
  ///   loaded; `CancellationError`. Nothing has changed then (rule S2), with three exceptions: after
  ///   `outcomeUnknown`, which only an engine on a server throws, the change may have been made (rule N2), and
  ///   after `io` too, if the engine could not make it survive a power cut; and an engine without
  ///   `EngineCapabilities.atomicBatches` may have made some of several changes. After an error whose outcome
  ///   is unknown, the store reads the items again.
  public func insert(_ item: Item) async throws { try await perform([.insert([item])]) }

  /// Inserts items, in this order, as one batch. If two have the same identifier, the later one replaces the earlier one.
  /// Throws as `insert(_:)`.
  public func insert(_ items: consuming [Item]) async throws { try await perform([.insert(items)]) }

  /// Removes the item or the unreadable entry with the identifier of this item. Does nothing if there is none. O(N) in the
  /// number of items after the removed one, which move up. Throws as `insert(_:)`.
  public func remove(_ item: Item) async throws { try await perform([.remove([item])]) }

  /// Removes the items with the identifiers of these items, as one batch. O(N) for any number of them. Throws
  /// as `insert(_:)`.
  public func remove(_ items: consuming [Item]) async throws { try await perform([.remove(items)]) }

  /// Reads an item from the engine, changes it and writes it, as one step. No concurrent change is lost,
  /// whether by this store, another store or another process (rule S10; for changes that bypass this store,
  /// the engine must have `EngineCapabilities.transactions`).
  ///
  /// ```swift
  /// try await notes.update(note) { $0.isDone.toggle() }
  /// ```
  ///
  /// The argument only identifies the item; the closure receives the stored one. The closure may run more than once, in
  /// which case the last run counts. It runs on a thread of the engine, or, without `EngineCapabilities.transactions`, on
  /// the pool of Swift's tasks, where it must not block. O(log N).
  ///
  /// - Returns: The changed item, or nil if there is none with this identifier.
  /// - Throws: what the closure threw, with nothing changed; `StorageError` with code `unsupported` if the
  ///   closure changes the identifier or a newer program has stored the item, or with code `decodingFailed`;
  ///   otherwise as `insert(_:)`.
  @discardableResult
  public func update(_ item: Item, _ change: @escaping @Sendable (inout Item) throws -> Void) async throws
    -> Item?
  {
    try await update(backend.identifier(item), change)
  }

  /// Like `update(_:_:)`, for the item with this identifier.
  @discardableResult
  public func update(
    _ identifier: String, _ change: @escaping @Sendable (inout Item) throws -> Void
  ) async throws -> Item? {
    let update = StoreUpdate(of: CacheKey(identifier: identifier), change)
    if backend.engine == nil {
      // No change may take place between looking up the item and queueing its insertion.
      while isCommitting { await waitForNextBatch() }
      guard var item = self.item(identifier: identifier) else { return nil }
      try change(&item)
      try backend.checkIdentifier(of: item, is: update.key)
      try await insert(item)
      return item
    }
    try await perform([.update(update)])
    return update.result.withLock { $0 }
  }

  /// Removes all entries of the engine: all items and all ``unreadableEntries``. Throws as `insert(_:)`.
  public func removeAll() async throws { try await perform([.removeAll]) }
}

extension Store {
  /// Begins a chain with an insertion. Nothing happens until ``Operation/run()``; this call never throws.
  @_disfavoredOverload
  public func insert(_ item: Item) async throws -> Operation { Operation(self, .insert([item])) }

  /// Begins a chain with insertions. Nothing happens until ``Operation/run()``; this call never throws.
  @_disfavoredOverload
  public func insert(_ items: [Item]) async throws -> Operation { Operation(self, .insert(items)) }

  /// Begins a chain with a removal. Nothing happens until ``Operation/run()``; this call never throws.
  @_disfavoredOverload
  public func remove(_ item: Item) async throws -> Operation { Operation(self, .remove([item])) }

  /// Begins a chain with removals. Nothing happens until ``Operation/run()``; this call never throws.
  @_disfavoredOverload
  public func remove(_ items: [Item]) async throws -> Operation { Operation(self, .remove(items)) }

  /// Begins a chain with the removal of all entries. Nothing happens until ``Operation/run()``; this call never throws.
  @_disfavoredOverload
  public func removeAll() async throws -> Operation { Operation(self, .removeAll) }
}
