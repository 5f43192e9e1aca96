extension Array {
  /// The elements in a fixed order in which neighbors are far apart.
  ///
  /// Test cases run a few at a time, in the order of the arguments. Checks of one rule are adjacent there,
  /// and when all of them wait for a server or another process, the processors are idle.
  package var spread: [Element] {
    // The fractional parts of the multiples of the golden ratio are spread evenly over 0 to 1, for any count.
    func place(_ index: Int) -> UInt64 { UInt64(index) &* 0x9E37_79B9_7F4A_7C15 }
    return indices.sorted { place($0) < place($1) }.map { self[$0] }
  }

  /// The elements in groups of this many, in order; the last one may have fewer.
  package func groups(of count: Int) -> [[Element]] {
    stride(from: 0, to: self.count, by: count).map { Array(self[$0..<Swift.min($0 + count, self.count)]) }
  }

  /// The elements at even or at odd positions, by the parity of `number`; all of them in an exhaustive run.
  ///
  /// For checks that many correct engines must pass: each engine runs half of them.
  package func half(of number: Int) -> [Element] {
    TestRun.isExhaustive ? self : indices.filter { ($0 + number).isMultiple(of: 2) }.map { self[$0] }
  }
}
