#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Builds the keys and values that checks use.
///
/// It is in this module because CI compiles this module with optimization and the kits without. Checks build
/// millions of values.
package enum SampleText {
  /// The text as a value.
  package static func data(_ text: String) -> Data { Data(text.utf8) }

  /// The prefix followed by the number, padded to five digits.
  package static func numbered(_ prefix: String, _ number: Int) -> String {
    let digits = String(number)
    return prefix + String(repeating: "0", count: max(0, 5 - digits.count)) + digits
  }

  /// A text of the key and the version. A key that is not plain text is spelled out byte by byte.
  package static func value(of key: String, version: Int) -> Data {
    let isPlain = key.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") }
    if isPlain { return data("\(version) \(key)") }
    return data("\(version) \\" + key.utf8.map { String($0, radix: 16) }.joined(separator: "."))
  }
}
