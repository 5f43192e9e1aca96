/// Changes of a part of the value. Each is one call of ``StoredValue/update(_:)``.
extension StoredValue {
  /// Sets one property of the value. Throws as ``update(_:)``.
  public func set<Value>(_ keyPath: WritableKeyPath<Item, Value>, to value: Value) throws {
    try update { $0[keyPath: keyPath] = value }
  }

  /// Toggles the value. Throws as ``update(_:)``.
  public func toggle() throws where Item == Bool {
    try update { $0.toggle() }
  }

  /// Appends an element. Throws as ``update(_:)``.
  public func append(_ element: Item.Element) throws where Item: RangeReplaceableCollection {
    try update { $0.append(element) }
  }

  /// Replaces the first element that equals `element`. Does nothing if there is none. Throws as ``update(_:)``.
  public func replace(_ element: Item.Element, with replacement: Item.Element) throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable {
    try updateIfNeeded { $0.replaceFirst(element, with: replacement) }
  }

  /// Removes all elements that equal `element`, or appends it if there is none. Throws as ``update(_:)``.
  public func togglePresence(_ element: Item.Element) throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable {
    try update { $0.togglePresence(of: element) }
  }

  /// Sets the value of a key of the dictionary; nil removes the key. Throws as ``update(_:)``.
  public func update<Key: Hashable, Value>(key: Key, value: Value?) throws where Item == [Key: Value] {
    try update { $0[key] = value }
  }
}
