import StockroomCore

/// Keys that engines are known to confuse, grouped by cause.
enum AdversarialKeys {
  struct Family: Sendable {
    let name: String
    /// Completes the sentence "Expected: …".
    let expectation: String
    let keys: [CacheKey]

    init(_ name: String, _ expectation: String, _ keys: [String]) {
      self.name = name
      self.expectation = expectation
      self.keys = keys.map(CacheKey.init(verbatim:))
    }
  }

  static let families = [
    Family(
      "case", "keys that differ in case are different keys", ["A", "a", "ß", "SS", "ss", "İ", "i", "I"]),
    Family(
      "composition", "a composed and a decomposed accent make different keys",
      ["\u{E9}", "e\u{301}", "\u{212B}", "\u{C5}", "A\u{30A}", "\u{1E9B}\u{323}", "\u{FB01}", "fi"]),
    Family(
      "blanks", "leading, trailing and repeated spaces are significant",
      ["x", " x", "x ", " x ", "x\t", "x\n", "\nx", "x\r\n", "x y", "x  y", " ", "  ", "\u{A0}", "\u{2003}"]),
    Family(
      "control-characters", "control characters and NUL are significant at any position",
      ["n", "n\0", "\0n", "n\0m", "\0", "\0\0", "\u{1}", "\u{7F}", "\u{1B}[0m", "\u{FEFF}n", "\u{200B}n"]),
    Family(
      "paths", "keys that look like paths work like any other",
      [
        ".", "..", "...", "/", "//", "./p", "p", "p/", "/p", "p/q", "p//q", "p/../q", "q", "../q", "../../x",
        "/etc/passwd", "~", "~/x", "\\", "p\\q", "C:\\x", ".hidden", "p.tmp", "p~", "-", "--help",
      ]),
    Family(
      "escapes", "keys that look escaped differ from what they would stand for",
      [
        "%2F", "%2f", "%252F", "%", "%%", "%00", "&amp;", "&", "\\n", "%s%n", "+", "%20", "=", "a=b", "'",
        "\"",
        "'; DROP TABLE entries; --", "*", "?", "[a]", "_", "NULL", "nil",
      ]),
    Family(
      "numbers", "two spellings of the same number are different keys",
      ["1", "01", "1.0", "+1", "1e0", "0x1", "-0", "0", "0.0", "1,0", "0b1", "00"]),
    Family(
      "hashes", "keys with the same hash, by common hash functions, are different keys",
      [
        // Collisions of FNV-1a, FNV-1, CRC-32, both variants of djb2 and the hash of Java's strings, all with 32 bits
        "costarring", "liquid", "declinate", "macallums", "creamwove", "quists", "plumless", "buckeroo",
        "codding",
        "gnu", "hetairas", "mentioner", "heliotropes", "neurospora", "haggadot", "loathsomenesses", "Aa",
        "BB",
        "AaBB", "BBAa",
        // Equal sums of bytes
        "listen", "silent", "abc", "bca",
      ]),
    Family(
      "one-place", "keys that differ in one byte, at any position, are different keys",
      differingInOnePlace),
    Family(
      "identifiers", "two spellings of the same identifier, address or time are different keys",
      [
        "123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000",
        "{123e4567-e89b-12d3-a456-426614174000}", "123e4567e89b12d3a456426614174000",
        "9007199254740992", "9007199254740993", "18446744073709551615", "18446744073709551616", "1e400",
        "2e400",
        "http://example.com/a", "HTTP://example.com/a", "http://EXAMPLE.com/a", "http://example.com:80/a",
        "http://example.com/a#b", "http://example.com/a?", "http://example.com/./a", "http://example.com/%61",
        "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.000Z", "127.0.0.1", "127.1",
        "YQ==", "YQ=", "YQ", "[1]", "[ 1 ]", "true", "TRUE", "user@example.com", "User@example.com",
      ]),
    Family(
      "devices", "names that some systems reserve work as keys like any other",
      [
        "CON", "con", "NUL", "nul", "PRN", "AUX", "COM1", "LPT1", "CON.txt", "desktop.ini", ".DS_Store",
        "._p", "~$p", ".#p", "#p#", ".p.icloud",
      ]),
    Family(
      "unicode", "a key can contain every scalar of Unicode",
      [
        "\u{FFFF}", "\u{FFFE}", "\u{FFFD}", "\u{10FFFF}", "\u{10000}", "\u{E000}", "\u{D7FF}", "\u{7FF}",
        "\u{800}",
        "👩‍👩‍👧‍👦", "👩", "🏳️‍🌈", "नमस्ते", "مرحبا", "日本語",
      ]),
    Family(
      "long-prefix", "keys that share their first 400 or 510 bytes are different keys",
      [
        long("a", 400), long("a", 400) + "b", long("a", 400) + "c", long("a", 400) + long("b", 111),
        long("a", 510), long("a", 511), long("a", 510) + "b", long("a", 255), long("a", 254), long("a", 256),
        long("/", 511), long("A", 511),
      ]),
  ]

  private static let differingInOnePlace: [String] = {
    var keys: Set<String> = []
    for length in [97, 200, 511] {
      let places = [0, 15, 16, 31, 32, 33, 47, 64, 80, length / 3, length / 2]
      for place in places + [50, 33, 17, 1].map({ length - $0 }) {
        keys.insert(long("k", place) + "x" + long("k", length - place - 1))
      }
    }
    return keys.sorted()
  }()

  static let all: [CacheKey] = families.flatMap(\.keys) + [longestEmoji] + lineEnds.keys

  /// Characters at which a program may split lines, besides those among the control characters and the spaces.
  static let lineEnds = Family(
    "line-ends", "every character that ends a line is significant",
    [
      "line", "line\u{B}", "line\u{B}b", "line\u{C}b", "line\u{1C}b", "line\u{1E}b", "line\u{85}",
      "line\u{85}b", "line\u{2028}b", "line\u{2029}b", "\u{2028}line", "line\u{2029}",
    ])

  /// Keys of up to 255 bytes. If an engine escapes every character but letters and digits, or every capital, the
  /// resulting file names are about as long as a file name may be, or longer. Two keys of each length differ in their
  /// last character.
  static let longEscapes: [CacheKey] = {
    var texts: Set<CacheKey> = []
    for character in ["/", "A", " ", "%", "é", "日", "🗄", "\0", "."] {
      for length in [64, 84, 85, 127, 128, 170, 250, 254] {
        texts.insert(key(long(character, length / character.utf8.count)))
      }
    }
    return texts.inByteOrder().flatMap { text in ["x", "y"].map { key(text.value + $0) } }
  }()

  /// 511 bytes, most of them emoji.
  static let longestEmoji = key(long("🗄", 127) + "€")

  /// Keys of 510 and 511 bytes whose last character takes several bytes.
  static let atTheEdge = [
    long("a", 509) + "é", long("a", 508) + "é", long("a", 508) + "日", long("a", 507) + "🗄",
    long("a", 506) + "🗄",
    long("é", 255), long("日", 170),
  ].map(CacheKey.init(verbatim:))

  private static func long(_ text: String, _ count: Int) -> String {
    String(repeating: text, count: count)
  }
}
