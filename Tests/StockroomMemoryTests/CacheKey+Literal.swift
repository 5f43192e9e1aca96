import StockroomCore

extension CacheKey: ExpressibleByStringLiteral {
  /// The key itself, in tests.
  public init(stringLiteral text: String) { self.init(verbatim: text) }
}
