#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

extension PropertyListDecoder {
  /// The maximum nesting of elements in a list. Foundation reads these with nested calls, so a malicious list
  /// could exhaust the stack.
  private static let maximumNesting = 256
  /// The maximum number of bytes by which a decoded binary list may be larger because it refers to one object several
  /// times, as lists with equal values do.
  private static let maximumGrowth = 64 << 20

  /// Decodes a property list from an untrusted source: a binary list, or XML in UTF-8, the encoding that all programs
  /// use for it.
  ///
  /// - Throws: `DecodingError`, also if the list is nested deeper than any real one, or is short and would become very
  ///   large.
  func decode<Value: Decodable>(untrusted type: Value.Type, from data: Data) throws -> Value {
    if let defect = data.starts(with: Data("bplist".utf8)) ? Self.binaryDefect(data) : Self.textDefect(data) {
      throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: defect))
    }
    return try decode(type, from: data)
  }

  private static func binaryDefect(_ list: Data) -> String? {
    do throws(BinaryListSize.Defect) {
      // In a list that refers to no object several times, an element takes at least two bytes, so its size is below
      // this limit.
      let size = list.count * BinaryListSize.sizeOfReference + maximumGrowth
      try BinaryListSize.check(list, maximumDepth: maximumNesting, maximumSize: size)
      return nil
    } catch {
      return switch error {
      case .malformed: "It is not a sound binary list."
      case .tooDeep: "Its elements are nested too deep."
      case .tooLarge: "Its \(list.count) bytes would become too large a list."
      }
    }
  }

  private static func textDefect(_ list: Data) -> String? {
    let nesting = list.withUnsafeBytes { XMLNesting.depth(of: $0, limit: maximumNesting) }
    guard let nesting else { return "It is neither binary nor XML in UTF-8." }
    return nesting > maximumNesting ? "Its elements are nested too deep." : nil
  }
}

/// The nesting depth of elements in XML text.
private enum XMLNesting {
  /// Markup without elements, regardless of its contents: its beginning and its end.
  private static let opaque = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">")].map {
    (begin: Array($0.0.utf8), end: Array($0.1.utf8))
  }

  private static let ambiguous = ["<?>", "<!-->", "<!--->"].map { Array($0.utf8) }
  /// The beginnings of the names of elements that contain others: Foundation accepts names that begin like
  /// this.
  private static let containers = ["plist", "array", "dict"].map { Array($0.utf8) }

  /// The depth, or one more than the limit if it is greater than that. Nil if the text is not XML. O(bytes).
  static func depth(of text: UnsafeRawBufferPointer, limit: Int) -> Int? {
    var rest = text[...]
    if rest.starts(with: [0xEF, 0xBB, 0xBF]) { rest = rest.dropFirst(3) }
    rest = rest.drop { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
    guard rest.first == UInt8(ascii: "<"), rest.dropFirst().first != 0, isInUTF8(rest) else { return nil }
    var (depth, greatest) = (0, 0)
    while let start = rest.firstIndex(of: UInt8(ascii: "<")), greatest <= limit {
      rest = rest[start...]
      // Parsers disagree where this markup ends.
      if ambiguous.contains(where: rest.starts) { return nil }
      if let part = opaque.first(where: { rest.starts(with: $0.begin) }) {
        rest = after(part.end, in: rest.dropFirst(part.begin.count))
        continue
      }
      let tag = rest.dropFirst().prefix { $0 != UInt8(ascii: ">") }
      rest = rest[tag.endIndex...]
      let isEnd = tag.first == UInt8(ascii: "/")
      guard containers.contains(where: tag.dropFirst(isEnd ? 1 : 0).starts) else { continue }
      if isEnd {
        depth = max(0, depth - 1)
      } else if tag.last != UInt8(ascii: "/") {
        depth += 1
        greatest = max(greatest, depth)
      }
    }
    return greatest
  }

  /// Whether the declaration at the beginning, if there is one, does not state another encoding.
  private static func isInUTF8(_ text: Slice<UnsafeRawBufferPointer>) -> Bool {
    guard text.starts(with: "<?xml".utf8) else { return true }
    let declaration = String(decoding: text.prefix { $0 != UInt8(ascii: ">") }, as: UTF8.self).lowercased()
    return !declaration.contains("encoding") || declaration.contains("utf-8")
  }

  private static func after(
    _ end: [UInt8], in text: Slice<UnsafeRawBufferPointer>
  ) -> Slice<UnsafeRawBufferPointer> {
    var rest = text
    while let start = rest.firstIndex(of: end[0]) {
      rest = rest[start...]
      if rest.starts(with: end) { return rest.dropFirst(end.count) }
      rest = rest.dropFirst()
    }
    return rest[rest.endIndex...]
  }
}
