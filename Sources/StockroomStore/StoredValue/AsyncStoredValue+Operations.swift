/// Changes of a part of the value. Each is one call of ``AsyncStoredValue/update(_:)``.
extension AsyncStoredValue {
  /// Sets one property of the value. Throws as ``update(_:)``.
  public func set<Value: Sendable>(
    _ keyPath: any WritableKeyPath<Item, Value> & Sendable, to value: Value
  ) async throws {
    try await update { $0[keyPath: keyPath] = value }
  }

  /// Toggles the value. Throws as ``update(_:)``.
  public func toggle() async throws where Item == Bool {
    try await update { $0.toggle() }
  }

  /// Appends an element. Throws as ``update(_:)``.
  public func append(_ element: Item.Element) async throws
  where Item: RangeReplaceableCollection, Item.Element: Sendable {
    try await update { $0.append(element) }
  }

  /// Replaces the first element that equals `element`. Does nothing if there is none. Throws as ``update(_:)``.
  public func replace(_ element: Item.Element, with replacement: Item.Element) async throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable & Sendable {
    try await updateIfNeeded { $0.replaceFirst(element, with: replacement) }
  }

  /// Removes all elements that equal `element`, or appends it if there is none. Throws as ``update(_:)``.
  public func togglePresence(_ element: Item.Element) async throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable & Sendable {
    try await update { $0.togglePresence(of: element) }
  }

  /// Sets the value of a key of the dictionary; nil removes the key. Throws as ``update(_:)``.
  public func update<Key: Hashable & Sendable, Value: Sendable>(key: Key, value: Value?) async throws
  where Item == [Key: Value] {
    try await update { $0[key] = value }
  }
}
