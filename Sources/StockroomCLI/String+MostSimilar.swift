extension String {
  /// The first of the names with the smallest distance from this text; nil if that is more than a third of the length
  /// of this text.
  func mostSimilar(in names: [String]) -> String? {
    let distances = names.map { (name: $0, distance: distance(to: $0)) }
    guard let best = distances.min(by: { $0.distance < $1.distance }), best.distance * 3 <= count else {
      return nil
    }
    return best.name
  }

  /// The number of characters that must be inserted, removed or replaced to get the other text (Levenshtein distance).
  private func distance(to other: String) -> Int {
    let other = Array(other)
    var row = Array(0...other.count)
    for (line, character) in enumerated() {
      var diagonal = row[0]
      row[0] = line + 1
      for column in other.indices {
        let replaced = diagonal + (character == other[column] ? 0 : 1)
        diagonal = row[column + 1]
        row[column + 1] = Swift.min(replaced, diagonal + 1, row[column] + 1)
      }
    }
    return row[other.count]
  }
}
