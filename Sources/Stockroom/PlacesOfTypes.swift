import StockroomCore

/// Which types have a place of their own by the name of the type.
///
/// The full name of a private or local type has an address in it, which the next build changes, so that part is left
/// out. Should two types of one process then have one name, the second gets no place: in that of the first each would
/// take the other's values for its own.
enum PlacesOfTypes {
  private static let typesByName = MutexProtected<[String: [ObjectIdentifier]]>([:])

  /// The name of the place for values of these types.
  ///
  /// - Throws: `StorageError` with code `unsupported` if other types have it.
  static func name(for types: [any Any.Type]) throws -> String {
    let name = types.map {
      String(reflecting: $0).replacing(#/\(unknown context at \$[0-9a-f]+\)\./#, with: "")
    }
    .joined(separator: ": ")
    guard claim(name, for: types) else {
      throw StorageError(
        .unsupported,
        "Two types are called \(name), so they would share one place. Say where the values of one belong.")
    }
    return name
  }

  /// The name of the directory for values of a type: the name of its place, or the beginning of that and its hash where
  /// it is longer than a file's name may be, as that of a generic type easily is.
  ///
  /// - Throws: as ``name(for:)``.
  static func directoryName(for type: any Any.Type) throws -> String {
    let name = try name(for: [type])
    // Of Linux and of Apple's systems.
    let maximumLength = 255
    guard name.utf8.count > maximumLength else { return name }
    let hash = CacheKey(name).value
    var beginning = name[...]
    while beginning.utf8.count + 1 + hash.utf8.count > maximumLength { beginning.removeLast() }
    return "\(beginning)-\(hash)"
  }

  /// Gives a name to these types, unless others have it already: then false.
  static func claim(_ name: String, for types: [any Any.Type]) -> Bool {
    let identifiers = types.map { ObjectIdentifier($0) }
    return typesByName.withLock { typesByName in
      if let owner = typesByName[name] { return owner == identifiers }
      typesByName[name] = identifiers
      return true
    }
  }
}
