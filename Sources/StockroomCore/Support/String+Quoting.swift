extension String {
  /// The text with every occurrence of a scalar replaced, whatever follows it.
  ///
  /// For quoting. What reads the result looks at bytes, whereas `replacing` looks at characters: to it a quotation mark with a combining
  /// accent behind it is another character than the quotation mark.
  package func replacingScalar(_ scalar: Unicode.Scalar, with replacement: String) -> String {
    var result = String.UnicodeScalarView()
    for next in unicodeScalars {
      if next == scalar {
        result.append(contentsOf: replacement.unicodeScalars)
      } else {
        result.append(next)
      }
    }
    return String(result)
  }
}
