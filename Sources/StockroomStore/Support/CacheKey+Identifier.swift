import StockroomCore

extension CacheKey {
  /// The key of an identifier of any length and content (rule S8): the identifier itself if it is a valid key, otherwise
  /// its hash. `rawValue` is the identifier.
  init(identifier: String) {
    if (1...CacheKey.maximumLength).contains(identifier.utf8.count) {
      self.init(verbatim: identifier)
    } else {
      self.init(identifier)
    }
  }

  /// Throws if the key was created from another identifier than `other`, which happens if two identifiers
  /// have the same hash.
  ///
  /// - Throws: `StorageError` with code `unsupported`.
  func checkIdentifier(_ other: String) throws {
    guard rawValue.utf8.elementsEqual(other.utf8) else {
      throw StorageError(
        .unsupported,
        "Two identifiers have the key \(self): \(rawValue.prefix(40).debugDescription)… and "
          + "\(other.prefix(40).debugDescription)…. Only one of them can be stored.")
    }
  }

  /// Whether the key is a hash of the identifier.
  var isHash: Bool { value.utf8.count != rawValue.utf8.count }
}
