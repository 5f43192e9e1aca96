/// An element of an XML document.
struct MarkupElement {
  enum Content {
    case nothing
    case text(String)
    case elements([MarkupElement])
  }

  let name: String
  let attributes: [(name: String, value: String)]
  let content: Content

  init(_ name: String, _ attributes: [(String, String)], _ content: Content) {
    (self.name, self.attributes, self.content) = (name, attributes, content)
  }

  /// The element as lines of a document. Only a text has lines that are not indented, as it is shown as it is.
  var lines: [String] {
    let tag = attributes.reduce(name) { #"\#($0) \#($1.name)="\#($1.value.inAttribute)""# }
    switch content {
    case .nothing: return ["<\(tag)/>"]
    case .text(let text): return ["<\(tag)>\(text.inMarkup)</\(name)>"]
    case .elements(let elements) where elements.isEmpty: return ["<\(tag)/>"]
    case .elements(let elements):
      return ["<\(tag)>"] + elements.flatMap(\.lines).map { "  " + $0 } + ["</\(name)>"]
    }
  }
}

// Scalar by scalar, as what is to be replaced may be the beginning of a character with accents.

extension String {
  /// The text as the contents of an element of XML 1.0, which has no way to write most control characters.
  fileprivate var inMarkup: String {
    withVisibleControls.unicodeScalars.reduce(into: "") { text, scalar in
      switch scalar {
      case "&": text += "&amp;"
      case "<": text += "&lt;"
      case ">": text += "&gt;"
      case "\"": text += "&quot;"
      default: text.unicodeScalars.append(scalar)
      }
    }
  }

  /// The same as the value of an attribute, where a parser would take line breaks and tabs for blanks.
  fileprivate var inAttribute: String {
    inMarkup.unicodeScalars.reduce(into: "") { text, scalar in
      switch scalar {
      case "\n": text += "&#10;"
      case "\t": text += "&#9;"
      default: text.unicodeScalars.append(scalar)
      }
    }
  }
}
