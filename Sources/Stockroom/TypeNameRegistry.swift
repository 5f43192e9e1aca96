import StockroomCore

/// The type names that this process uses for directories and namespaces. Each name belongs to one type only.
///
/// The full name of a private or local type contains an address that changes with every build, so that part is removed.
/// If two types in a process then have the same name, the second one cannot use it: each would treat the other's values as
/// its own.
enum TypeNameRegistry {
  private static let typesByName = MutexProtected<[String: [ObjectIdentifier]]>([:])

  /// The name for values of these types.
  ///
  /// - Throws: `StorageError` with code `unsupported` if other types have the same name.
  static func name(for types: [any Any.Type]) throws -> String {
    let name = types.map {
      String(reflecting: $0).replacing(#/\(unknown context at \$[0-9a-f]+\)\./#, with: "")
    }
    .joined(separator: ": ")
    guard claim(name, for: types) else {
      throw StorageError(
        .unsupported,
        "Two types have the name \(name), so their values would be mixed up. Specify a directory, or for a cache a namespace, for one of them."
      )
    }
    return name
  }

  /// The name of the directory for values of a type: the name of the type. If that is too long for a file name, as the name
  /// of a generic type may be, a prefix of it and a hash.
  ///
  /// - Throws: as ``name(for:)``.
  static func directoryName(for type: any Any.Type) throws -> String {
    let name = try name(for: [type])
    // The maximum length of a file name on Linux and on Apple's systems.
    let maximumLength = 255
    guard name.utf8.count > maximumLength else { return name }
    let hash = CacheKey(name).value
    var prefix = name[...]
    while prefix.utf8.count + 1 + hash.utf8.count > maximumLength { prefix.removeLast() }
    return "\(prefix)-\(hash)"
  }

  /// Registers a name for these types. Returns false if other types have it.
  static func claim(_ name: String, for types: [any Any.Type]) -> Bool {
    let identifiers = types.map { ObjectIdentifier($0) }
    return typesByName.withLock { typesByName in
      if let owner = typesByName[name] { return owner == identifiers }
      typesByName[name] = identifiers
      return true
    }
  }
}
