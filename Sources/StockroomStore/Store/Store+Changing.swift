import StockroomCore

// Each change has two forms of one name: one that acts at once, and one that begins a chain. Swift picks the second
// where something is chained to it. Those are async only so that no context prefers them: where Swift expects what is
// not async, as in code at the top level of a program, a change that acts would silently become a chain that does not.

extension Store {
  /// Inserts an item behind all others, or in the place of the one with its identifier (rule S4).
  ///
  /// O(1) in the number of items. Returns when the engine has acknowledged it.
  ///
  /// If the items could not be loaded, each change tries that again, once. The first item that a store inserts is
  /// decoded as well, to see that it keeps its identifier.
  ///
  /// - Throws: what the engine threw; `StorageError` with code `encodingFailed`, also if an item does not keep its
  ///   identifier, with `unsupported` if another item's identifier has the same hash, or with the code of the failure if
  ///   the items could not be loaded; `CancellationError`. Nothing has changed then (rule S2).
  public func insert(_ item: Item) async throws { try await perform([.insert([item])]) }

  /// Inserts items, in this order, as one batch. Of two with one identifier the later one counts. Throws as
  /// `insert(_:)`.
  public func insert(_ items: [Item]) async throws { try await perform([.insert(items)]) }

  /// Removes the item with the identifier of this one, or the unreadable entry in its place. If there is neither,
  /// nothing happens. O(N) in the number of items behind it, which move up.
  /// Throws as `insert(_:)`.
  public func remove(_ item: Item) async throws { try await perform([.remove([item])]) }

  /// Removes the items with the identifiers of these, as one batch. O(N), however many they are. Throws as `insert(_:)`.
  public func remove(_ items: [Item]) async throws { try await perform([.remove(items)]) }

  /// Removes all items, and everything else that the engine holds, ``unreadableEntries`` too. Throws as
  /// `insert(_:)`.
  public func removeAll() async throws { try await perform([.removeAll]) }
}

extension Store {
  /// Begins a chain with an insertion. Nothing happens until ``Operation/run()``.
  @_disfavoredOverload
  public func insert(_ item: Item) async throws -> Operation { Operation(self, .insert([item])) }

  /// Begins a chain with insertions. Nothing happens until ``Operation/run()``.
  @_disfavoredOverload
  public func insert(_ items: [Item]) async throws -> Operation { Operation(self, .insert(items)) }

  /// Begins a chain with a removal. Nothing happens until ``Operation/run()``.
  @_disfavoredOverload
  public func remove(_ item: Item) async throws -> Operation { Operation(self, .remove([item])) }

  /// Begins a chain with removals. Nothing happens until ``Operation/run()``.
  @_disfavoredOverload
  public func remove(_ items: [Item]) async throws -> Operation { Operation(self, .remove(items)) }

  /// Begins a chain with the removal of everything. Nothing happens until ``Operation/run()``.
  @_disfavoredOverload
  public func removeAll() async throws -> Operation { Operation(self, .removeAll) }
}
