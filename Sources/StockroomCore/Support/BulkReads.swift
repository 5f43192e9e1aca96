// The steps that reads of many entries have in common, whatever the engine.

extension Sequence {
  /// What `transform` returns for each element, without the nils. Yields to other tasks between portions (rule C5), and ends
  /// with the task (rule C4).
  ///
  /// - Parameter portion: How many elements there are between two looks at the clock.
  @inlinable package func compactMap<Result>(
    yieldingTo timer: inout YieldTimer, every portion: Int, _ transform: (Element) throws -> Result?
  ) async throws -> [Result] {
    var results: [Result] = []
    results.reserveCapacity(underestimatedCount)
    var count = 0
    for element in self {
      if let result = try transform(element) { results.append(result) }
      count += 1
      if count % portion == 0 { try await timer.yieldIfDue() }
    }
    return results
  }
}

extension KeyRangeCursor {
  /// Appends an entry that is visited in the order of keys, if it is in the range. Returns whether to go on.
  @inlinable package func collect<Entry>(
    _ key: UnsafeRawBufferPointer, into found: inout [Entry], limit: Int, _ entry: () throws -> Entry
  ) rethrows -> Bool {
    switch position(of: key) {
    case .before: return true
    case .behind: return false
    case .inside:
      found.append(try entry())
      return found.count < limit
    }
  }
}
