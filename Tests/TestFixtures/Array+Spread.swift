extension Array {
  /// The elements in an order in which neighbors are far apart, always the same one.
  ///
  /// Few cases of a test run at once, in the order of its arguments. What is about one rule stands together there, and when all of it
  /// waits, for a server or for another process, nothing computes meanwhile.
  package var spread: [Element] {
    // Multiples of the golden ratio, without their whole part, divide the range from 0 to 1 evenly, however few there are.
    func place(_ index: Int) -> UInt64 { UInt64(index) &* 0x9E37_79B9_7F4A_7C15 }
    return indices.sorted { place($0) < place($1) }.map { self[$0] }
  }

  /// Every other element, or for an odd number those in between; all of them in an exhaustive run.
  ///
  /// What many correct engines should pass is passed by a half of them in turn.
  package func half(of number: Int) -> [Element] {
    TestRun.isExhaustive ? self : indices.filter { ($0 + number).isMultiple(of: 2) }.map { self[$0] }
  }
}
