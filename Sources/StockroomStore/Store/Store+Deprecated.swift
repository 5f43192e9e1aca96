// Former names of insertion, for source compatibility.

extension Store {
  /// Inserts an item.
  @available(*, deprecated, renamed: "insert(_:)")
  public func add(_ item: Item) async throws { try await insert(item) }

  /// Inserts items.
  @available(*, deprecated, renamed: "insert(_:)")
  public func add(_ items: [Item]) async throws { try await insert(items) }

  /// Begins a chain with an insertion.
  @available(*, deprecated, renamed: "insert(_:)")
  @_disfavoredOverload
  public func add(_ item: Item) async throws -> Operation { try await insert(item) }

  /// Begins a chain with insertions.
  @available(*, deprecated, renamed: "insert(_:)")
  @_disfavoredOverload
  public func add(_ items: [Item]) async throws -> Operation { try await insert(items) }

  /// Begins a chain with insertions.
  @available(*, deprecated, renamed: "insert(_:)")
  public func add(items: [Item]) async throws -> Operation { try await insert(items) }
}

extension Store.Operation {
  /// The chain followed by an insertion.
  @available(*, deprecated, renamed: "insert(_:)")
  public func add(_ item: Item) -> Store.Operation { insert(item) }

  /// The chain followed by insertions.
  @available(*, deprecated, renamed: "insert(_:)")
  public func add(_ items: [Item]) -> Store.Operation { insert(items) }

  /// The chain followed by insertions.
  @available(*, deprecated, renamed: "insert(_:)")
  public func add(items: [Item]) -> Store.Operation { insert(items) }
}
