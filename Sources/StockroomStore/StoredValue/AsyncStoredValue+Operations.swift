/// What can be done to a part of the value. Each is one ``AsyncStoredValue/update(_:)``, and throws as that
/// does.
extension AsyncStoredValue {
  /// Changes one property of the value and leaves the others as they are.
  public func set<Value: Sendable>(
    _ keyPath: any WritableKeyPath<Item, Value> & Sendable, to value: Value
  ) async throws {
    try await update { $0[keyPath: keyPath] = value }
  }

  /// Makes true false, and false true.
  public func toggle() async throws where Item == Bool {
    try await update { $0.toggle() }
  }

  /// Adds an element at the end.
  public func append(_ element: Item.Element) async throws
  where Item: RangeReplaceableCollection, Item.Element: Sendable {
    try await update { $0.append(element) }
  }

  /// Puts an element into the place of the first one that equals another. If there is none, nothing changes.
  public func replace(_ element: Item.Element, with replacement: Item.Element) async throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable & Sendable {
    try await updateIfNeeded { $0.replaceFirst(element, with: replacement) }
  }

  /// Removes the element, as often as it is there, or appends it if it is not there.
  public func togglePresence(_ element: Item.Element) async throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable & Sendable {
    try await update { $0.togglePresence(of: element) }
  }

  /// Stores a value under a key of the dictionary; nil removes the key.
  public func update<Key: Hashable & Sendable, Value: Sendable>(key: Key, value: Value?) async throws
  where Item == [Key: Value] {
    try await update { $0[key] = value }
  }
}
