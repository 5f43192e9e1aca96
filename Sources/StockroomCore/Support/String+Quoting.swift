extension String {
  /// The text with every occurrence of a scalar replaced, regardless of what follows it.
  ///
  /// For quoting. The result is parsed as bytes, whereas `replacing` compares characters: for it, a quotation
  /// mark followed by a combining accent is another character than the quotation mark.
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
