import Foundation
import StockroomCore
import Testing

@Suite struct CacheKeyTests {
  /// The test vectors of RFC 1321, appendix A.5, and keys that earlier libraries have stored.
  @Test(
    "A key made from a text is its MD5 digest, formatted as a UUID",
    arguments: [
      ("", "D41D8CD9-8F00-B204-E980-0998ECF8427E"),
      ("a", "0CC175B9-C0F1-B6A8-31C3-99E269772661"),
      ("message digest", "F96B697D-7CB7-938D-525A-2F31AAF161D0"),
      (String(repeating: "1234567890", count: 8), "57EDF4A2-2BE3-C955-AC49-DA2E2107B67A"),
      ("cache-key", "2536A137-81F3-3E55-574F-AFF9ACB9F995"),
    ])
  func hashed(text: String, value: String) {
    #expect(CacheKey(text).value == value)
    #expect(CacheKey(text).rawValue == text)
  }

  @Test("Texts of every length around a block of 64 bytes have different keys")
  func lengths() {
    let keys = (0..<200).map { CacheKey(String(repeating: "x", count: $0)) }
    #expect(Set(keys).count == keys.count)
  }

  @Test(
    "A URL's scheme, www. and one trailing slash do not affect its key",
    arguments: [
      "https://www.redpanda.club", "http://redpanda.club", "https://redpanda.club/",
      "https://www.redpanda.club/",
      "ftp://WWW.redpanda.club",
    ])
  func url(text: String) throws {
    let key = CacheKey(url: try #require(URL(string: text)))
    #expect(key.value == "37E97C2D-25C0-19AE-755D-FC39211AEE32")
    #expect(key.rawValue == text)
  }

  @Test("All other parts of a URL affect its key")
  func urlsThatDiffer() throws {
    let keys = try [
      "https://a.b", "https://a.b//", "https://a.b/c", "https://a.b/C", "https://a.b/www.c", "https://a.b?c",
      "www.a.c",
    ].map { CacheKey(url: try #require(URL(string: $0))) }
    #expect(Set(keys).count == keys.count)
  }

  @Test("Keys are compared byte for byte, not by canonical equivalence")
  func identity() {
    let composed = CacheKey(verbatim: "\u{e9}")
    let decomposed = CacheKey(verbatim: "e\u{301}")
    #expect(composed.value == decomposed.value)
    #expect(composed != decomposed)
    #expect(Set([composed, decomposed]).count == 2)
    #expect(decomposed < composed)
  }

  @Test("Keys are equal if their values are, whatever their raw values")
  func rawValueIsInformation() {
    let hashed = CacheKey("cache-key")
    let verbatim = CacheKey(verbatim: hashed.value)
    #expect(hashed == verbatim)
    #expect(hashed.hashValue == verbatim.hashValue)
    #expect(hashed.rawValue != verbatim.rawValue)
  }

  @Test("Keys are ordered by their bytes as unsigned numbers")
  func order() {
    let sorted = ["\0", "\0a", "A", "a", "a\0", "aa", "b", "\u{7f}", "é", "\u{ffff}", "😀"]
    #expect(sorted.reversed().map(CacheKey.init(verbatim:)).sorted() == sorted.map(CacheKey.init(verbatim:)))
  }

  @Test(
    "A key has 1 to 511 bytes",
    arguments: [(0, false), (1, true), (511, true), (512, false), (100_000, false)])
  func length(count: Int, isValid: Bool) {
    let key = CacheKey(verbatim: String(repeating: "k", count: count))
    let checks: [() throws -> Void] = [
      { try key.validate() }, { try [CacheKey("ok"), key].validate() },
      { try [.removeAll, .remove(key: key)].validate() },
    ]
    for check in checks {
      var code: StorageError.Code?
      do { try check() } catch { code = (error as? StorageError)?.code }
      #expect(code == (isValid ? nil : .invalidKey))
    }
  }

  @Test("Length is counted in UTF-8 bytes")
  func lengthInBytes() throws {
    try CacheKey(verbatim: String(repeating: "é", count: 255)).validate()
    #expect(throws: StorageError.self) {
      try CacheKey(verbatim: String(repeating: "é", count: 256)).validate()
    }
  }

  @Test(
    "Bytes that are not UTF-8 are not a key",
    arguments: [
      (Array("é\0😀".utf8), true), ([0xEF, 0xBF, 0xBD], true), ([0xFF], false), ([0x61, 0xC3], false),
      ([0xF0, 0x90, 0x80], false), ([0xED, 0xA0, 0x80], false), ([0xC0, 0x80], false),
    ])
  func decoding(bytes: [UInt8], isKey: Bool) {
    let key = bytes.withUnsafeBytes { CacheKey(utf8: $0) }
    #expect(key.map { Array($0.value.utf8) } == (isKey ? bytes : nil))
  }
}
