// Steps of the reads of many entries, shared by all engines.

extension Sequence {
  /// The results of `transform` for all elements, without the nils. Yields to other tasks between portions (rule C5), and throws
  /// `CancellationError` if the task is cancelled (rule C4).
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
  /// Appends the entry if its key is in the range. The caller visits the keys in order. Returns false once no later key can be in
  /// the range or the limit is reached.
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
