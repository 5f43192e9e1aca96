/// What can be done to a part of the value. Each is one ``StoredValue/update(_:)``, and throws as that does.
extension StoredValue {
  /// Changes one property of the value and leaves the others as they are.
  public func set<Value>(_ keyPath: WritableKeyPath<Item, Value>, to value: Value) throws {
    try update { $0[keyPath: keyPath] = value }
  }

  /// Makes true false, and false true.
  public func toggle() throws where Item == Bool {
    try update { $0.toggle() }
  }

  /// Adds an element at the end.
  public func append(_ element: Item.Element) throws where Item: RangeReplaceableCollection {
    try update { $0.append(element) }
  }

  /// Puts an element into the place of the first one that equals another. If there is none, nothing changes.
  public func replace(_ element: Item.Element, with replacement: Item.Element) throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable {
    try updateIfNeeded { $0.replaceFirst(element, with: replacement) }
  }

  /// Removes the element, as often as it is there, or appends it if it is not there.
  public func togglePresence(_ element: Item.Element) throws
  where Item: RangeReplaceableCollection, Item.Element: Equatable {
    try update { $0.togglePresence(of: element) }
  }

  /// Stores a value under a key of the dictionary; nil removes the key.
  public func update<Key: Hashable, Value>(key: Key, value: Value?) throws where Item == [Key: Value] {
    try update { $0[key] = value }
  }
}
