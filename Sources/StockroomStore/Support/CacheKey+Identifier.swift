import StockroomCore

extension CacheKey {
  /// The key for an identifier of any length and content (rule S8): the identifier itself where a key can hold it,
  /// its hash where not. The identifier stays as `rawValue`.
  init(identifier: String) {
    self = CacheKey(verbatim: identifier)
    if !(1...CacheKey.maximumLength).contains(identifier.utf8.count) { self = CacheKey(identifier) }
  }
}
