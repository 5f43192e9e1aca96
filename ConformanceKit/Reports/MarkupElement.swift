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

  /// The element as lines of a document. Lines of a text are not indented, since that would change the text.
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

// Processes scalars, since a character to be escaped may be the start of a grapheme with combining accents.

extension String {
  /// The text as the contents of an element of XML 1.0, which cannot contain most control characters.
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

  /// The same as the value of an attribute, where a parser would replace line breaks and tabs by spaces.
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
