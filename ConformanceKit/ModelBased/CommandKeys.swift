import StockroomCore
import StockroomKitSupport

/// The keys of a sequence: few, so that calls affect the same keys, and often keys that engines are known to confuse.
enum CommandKeys {
  /// Keys that every engine has to refuse: empty, of 512 bytes, and of less than 511 characters but more bytes.
  static let invalid = ["", String(repeating: "k", count: 512), String(repeating: "é", count: 256)].map {
    CacheKey(verbatim: $0)
  }

  static func some(for theme: CommandTheme, _ random: inout SeededRandom) -> [CacheKey] {
    switch theme {
    case .fewKeys, .fewValues, .largeValues:
      // Now and then created with `CacheKey.init(_:)`, like the keys of most applications.
      if random.once(in: 4) { return ["a", "b", "c"].map { CacheKey($0) } }
      return Array(["a", "b", "c"].prefix(2 + random.next(upTo: 2))).map { CacheKey(verbatim: $0) }
    case .manyKeys:
      return (0..<40).map { CacheKey(verbatim: "key \($0)") }
    case .similarKeys:
      return similar(&random)
    }
  }

  /// Keys of one or two families, and variants of these: with a suffix, a prefix, capitals, without the last character,
  /// repeated, or of the maximum length.
  private static func similar(_ random: inout SeededRandom) -> [CacheKey] {
    var keys: [CacheKey] = []
    for _ in 0...random.next(upTo: 2) {
      let family = random.pick(AdversarialKeys.families)?.keys ?? []
      for _ in 0..<(2 + random.next(upTo: 4)) { keys.append(random.pick(family) ?? CacheKey(verbatim: "a")) }
    }
    for _ in 0..<random.next(upTo: 4) {
      if let relative = random.pick(keys).map({ relative(of: $0, &random) }), relative.isValid {
        keys.append(relative)
      }
    }
    // Duplicates would only make a key more frequent.
    var seen: Set<CacheKey> = []
    return keys.filter { seen.insert($0).inserted }
  }

  private static func relative(of key: CacheKey, _ random: inout SeededRandom) -> CacheKey {
    let text = key.value
    switch random.next(upTo: 7) {
    case 0: return CacheKey(verbatim: text + "\0")
    case 1: return CacheKey(verbatim: text + text)
    case 2: return CacheKey(verbatim: "../" + text)
    case 3: return CacheKey(verbatim: text.uppercased())
    case 4: return CacheKey(verbatim: text + " ")
    case 5:
      var shorter = text.unicodeScalars
      shorter = String.UnicodeScalarView(shorter.dropLast())
      return CacheKey(verbatim: String(shorter))
    default:
      // Keys of the maximum length.
      let rest = CacheKey.maximumLength - text.utf8.count
      return CacheKey(verbatim: text + String(repeating: "z", count: max(0, rest)))
    }
  }
}
