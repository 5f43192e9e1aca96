import StockroomCore

extension String {
  /// A Swift expression for the text. It has the same scalars even if an editor normalizes accents, and is short if a
  /// character is repeated many times.
  var literal: String {
    var parts: [String] = []
    var part = ""
    for (scalar, count) in CacheKey(verbatim: self).runs {
      let text = Self.escaped(scalar)
      if count <= 16 {
        part += String(repeating: text, count: count)
        continue
      }
      if !part.isEmpty { parts.append("\"\(part)\"") }
      part = ""
      parts.append("String(repeating: \"\(text)\", count: \(count))")
    }
    if !part.isEmpty || parts.isEmpty { parts.append("\"\(part)\"") }
    return parts.joined(separator: " + ")
  }

  private static func escaped(_ scalar: Unicode.Scalar) -> String {
    switch scalar {
    case "\"": "\\\""
    case "\\": "\\\\"
    case " "..."~": String(scalar)
    default: "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
    }
  }
}

extension Optional<Int> {
  /// The number as a Swift expression.
  var literal: String {
    switch self {
    case nil: "nil"
    case Int.max: ".max"
    case let number?: String(number)
    }
  }
}
