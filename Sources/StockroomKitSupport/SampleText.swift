#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Builds the keys and values that checks use.
///
/// Checks build millions of values, so this type is in this module, which CI compiles with optimization, unlike the kits.
package enum SampleText {
  /// The text as a value.
  package static func data(_ text: String) -> Data { Data(text.utf8) }

  /// The prefix followed by the number, padded to five digits.
  package static func numbered(_ prefix: String, _ number: Int) -> String {
    let digits = String(number)
    return prefix + String(repeating: "0", count: max(0, 5 - digits.count)) + digits
  }

  /// A value that contains the version and the key as text. If the key contains a space, a backslash, or a character that
  /// is not printable ASCII, its bytes are written in hexadecimal.
  package static func value(of key: String, version: Int) -> Data {
    let isPlain = key.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") }
    if isPlain { return data("\(version) \(key)") }
    return data("\(version) \\" + key.utf8.map { String($0, radix: 16) }.joined(separator: "."))
  }
}
