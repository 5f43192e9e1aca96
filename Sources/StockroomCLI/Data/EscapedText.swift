import Foundation

extension String {
  /// The text as one line that is safe to show on a terminal. Characters that would move the cursor, break the line,
  /// change the direction of writing or be invisible are written as escapes, such as `\n` or `\u{1B}`, and a backslash
  /// as two.
  ///
  /// Different texts have different results.
  var escaped: String { escaping(\.needsEscape) }

  /// The text with the same escapes, but backslashes as they are: for a message of which parts are ``escaped`` already.
  var withoutControls: String { escaping { $0 != "\\" && $0.needsEscape } }

  private func escaping(_ needsEscape: (Unicode.Scalar) -> Bool) -> String {
    guard unicodeScalars.contains(where: needsEscape) else { return self }
    var text = String.UnicodeScalarView()
    for scalar in unicodeScalars {
      if needsEscape(scalar) {
        text.append(contentsOf: scalar.escape.unicodeScalars)
      } else {
        text.append(scalar)
      }
    }
    return String(text)
  }
}

extension Data {
  /// The bytes as one line of text: as ``Swift/String/escaped`` if they are UTF-8. Otherwise each byte that is not part
  /// of a UTF-8 character is written as `\x` and two digits.
  var escaped: String {
    if let text = String(validating: self, as: UTF8.self) { return text.escaped }
    var (text, rest) = ("", self[...])
    while let first = rest.first {
      // No scalar has more than four bytes.
      let scalar = (1...4).lazy.compactMap { String(validating: rest.prefix($0), as: UTF8.self) }.first
      text += scalar?.escaped ?? #"\x"# + String(format: "%02X", first)
      rest = rest.dropFirst(scalar?.utf8.count ?? 1)
    }
    return text
  }
}

extension Unicode.Scalar {
  fileprivate var needsEscape: Bool {
    switch properties.generalCategory {
    case .control, .lineSeparator, .paragraphSeparator, .unassigned: true
    // The zero-width joiner and non-joiner are not escaped: they combine other characters, for instance to the emoji of
    // a family.
    case .format: value != 0x200C && value != 0x200D
    default: self == "\\"
    }
  }

  fileprivate var escape: String {
    switch self {
    case "\\": #"\\"#
    case "\n": #"\n"#
    case "\r": #"\r"#
    case "\t": #"\t"#
    default: #"\u{"# + String(value, radix: 16, uppercase: true) + "}"
    }
  }
}
