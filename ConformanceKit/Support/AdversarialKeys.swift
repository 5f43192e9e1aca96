import StockroomCore

/// Keys that engines are known to confuse, grouped by what confuses them.
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
      "blanks", "leading, trailing and repeated blanks count",
      ["x", " x", "x ", " x ", "x\t", "x\n", "\nx", "x\r\n", "x y", "x  y", " ", "  ", "\u{A0}", "\u{2003}"]),
    Family(
      "control-characters", "control characters and NUL count, wherever they are",
      ["n", "n\0", "\0n", "n\0m", "\0", "\0\0", "\u{1}", "\u{7F}", "\u{1B}[0m", "\u{FEFF}n", "\u{200B}n"]),
    Family(
      "paths", "what looks like a path is a key like any other",
      [
        ".", "..", "...", "/", "//", "./p", "p", "p/", "/p", "p/q", "p//q", "p/../q", "q", "../q", "../../x",
        "/etc/passwd", "~", "~/x", "\\", "p\\q", "C:\\x", ".hidden", "p.tmp", "p~", "-", "--help",
      ]),
    Family(
      "escapes", "what looks escaped is not the same as what it would stand for",
      [
        "%2F", "%2f", "%252F", "%", "%%", "%00", "&amp;", "&", "\\n", "%s%n", "+", "%20", "=", "a=b", "'",
        "\"",
        "'; DROP TABLE entries; --", "*", "?", "[a]", "_", "NULL", "nil",
      ]),
    Family(
      "numbers", "keys that stand for the same number are different keys",
      ["1", "01", "1.0", "+1", "1e0", "0x1", "-0", "0", "0.0", "1,0", "0b1", "00"]),
    Family(
      "devices", "names that some systems reserve are keys like any other",
      ["CON", "con", "NUL", "nul", "PRN", "AUX", "COM1", "LPT1", "CON.txt", "desktop.ini", ".DS_Store"]),
    Family(
      "unicode", "every scalar of Unicode can be in a key",
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

  static let all: [CacheKey] = families.flatMap(\.keys) + [longestEmoji]

  /// 511 bytes, most of them emoji.
  static let longestEmoji = key(long("🗄", 127) + "€")

  /// Keys of 509 to 511 bytes whose last character has several.
  static let atTheEdge = [
    long("a", 509) + "é", long("a", 508) + "é", long("a", 508) + "日", long("a", 507) + "🗄",
    long("a", 506) + "🗄",
    long("é", 255), long("日", 170),
  ].map(CacheKey.init(verbatim:))

  private static func long(_ text: String, _ count: Int) -> String { String(repeating: text, count: count) }
}
