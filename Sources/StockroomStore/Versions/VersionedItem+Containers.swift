// Optionals and collections of versioned values, which have the versions of their contents.

/// A type that marks the end of a chain of versions when it is used as ``VersionedItem/Previous``: `Never`, and containers of it.
protocol EndOfVersions {}

extension Never: EndOfVersions {}
extension Optional: EndOfVersions where Wrapped: EndOfVersions {}
extension Array: EndOfVersions where Element: EndOfVersions {}
extension Dictionary: EndOfVersions where Key == String, Value: EndOfVersions {}

extension Optional: VersionedItem where Wrapped: VersionedItem {
  /// The version of the wrapped type.
  public static var version: Int { Wrapped.version }

  /// Migrates the value, if there is one.
  public init(migrating previous: Wrapped.Previous?) throws {
    self = try previous.map { try Wrapped(migrating: $0) }
  }
}

extension Array: VersionedItem where Element: VersionedItem {
  /// The version of the elements.
  public static var version: Int { Element.version }

  /// Migrates each element.
  public init(migrating previous: [Element.Previous]) throws {
    self = try previous.map { try Element(migrating: $0) }
  }
}

extension Dictionary: VersionedItem where Key == String, Value: VersionedItem {
  /// The version of the values.
  public static var version: Int { Value.version }

  /// Migrates each value.
  public init(migrating previous: [String: Value.Previous]) throws {
    self = try previous.mapValues { try Value(migrating: $0) }
  }
}
