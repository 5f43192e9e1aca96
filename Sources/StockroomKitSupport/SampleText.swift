#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What the keys and values of checks are made of.
///
/// It is here because this module is optimized in CI where the kits are not: checks make millions of them.
package enum SampleText {
  /// The text as a value.
  package static func data(_ text: String) -> Data { Data(text.utf8) }

  /// The prefix and the number, which has five digits or more.
  package static func numbered(_ prefix: String, _ number: Int) -> String {
    let digits = String(number)
    return prefix + String(repeating: "0", count: max(0, 5 - digits.count)) + digits
  }

  /// A plain text with the key and the version; a key that is no plain text is there byte by byte.
  package static func value(of key: String, version: Int) -> Data {
    let isPlain = key.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") }
    if isPlain { return data("\(version) \(key)") }
    return data("\(version) \\" + key.utf8.map { String($0, radix: 16) }.joined(separator: "."))
  }
}
