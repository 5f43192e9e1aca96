import StockroomCore

extension CacheKey {
  /// The key for an identifier of any length and content (rule S8): the identifier itself where a key can hold it,
  /// its hash where not. The identifier stays as `rawValue`.
  init(identifier: String) {
    if (1...CacheKey.maximumLength).contains(identifier.utf8.count) {
      self.init(verbatim: identifier)
    } else {
      self.init(identifier)
    }
  }

  /// Throws if the entry under this key is not that of the identifier that the key was made from, which happens if
  /// two identifiers have one hash.
  ///
  /// - Throws: `StorageError` with code `unsupported`.
  func checkIdentifier(_ other: String) throws {
    guard rawValue.utf8.elementsEqual(other.utf8) else {
      throw StorageError(
        .unsupported,
        "Two identifiers have the key \(self): \(rawValue.prefix(40).debugDescription)… and "
          + "\(other.prefix(40).debugDescription)…. The second cannot be stored.")
    }
  }

  /// Whether the identifier did not fit into the key.
  var isHash: Bool { value.utf8.count != rawValue.utf8.count }
}
