// The steps that reads of many entries have in common in all engines.

extension Sequence {
  /// The results of `transform` for all elements, without the nils. Yields to other tasks between portions
  /// (rule C5), and ends if the task is cancelled (rule C4).
  ///
  /// - Parameter portion: The number of elements between two checks of the clock.
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
  /// Appends an entry that is visited in the order of keys, if it is in the range. Returns whether to
  /// continue.
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
