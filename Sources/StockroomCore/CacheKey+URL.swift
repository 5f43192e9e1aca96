#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension CacheKey {
  /// A key for what a URL names, however the URL was spelled.
  ///
  /// The scheme, a `www.` in front of the host and one trailing slash are left out; the rest is hashed as
  /// ``init(_:)`` does. `https://www.example.com/a/` and `http://example.com/a` give the same key.
  public init(url: URL) {
    let text = url.absoluteString
    var rest = Substring(text)
    if let scheme = url.scheme, rest.hasPrefix(scheme + ":") {
      rest = rest.dropFirst(scheme.count + 1)
      if rest.hasPrefix("//") { rest = rest.dropFirst(2) }
    }
    if rest.lowercased().hasPrefix("www.") { rest = rest.dropFirst(4) }
    if rest.hasSuffix("/") { rest = rest.dropLast() }
    self.init(value: MD5.digest(of: rest.utf8).uuidFormatted, rawValue: text)
  }
}
