#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension CacheKey {
  /// Creates a key for a URL, ignoring its scheme, a leading `www.` of its host and one trailing slash.
  ///
  /// The rest is hashed as by ``init(_:)``, without normalizing it: `https://www.example.com/a/` and `http://example.com/a`
  /// result in the same key, `http://Example.com/a` and `http://example.com:80/a` in different ones.
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
