import StockroomCore

extension CacheKey: ExpressibleByStringLiteral {
  /// In tests, a literal is the key itself.
  public init(stringLiteral text: String) { self.init(verbatim: text) }
}
