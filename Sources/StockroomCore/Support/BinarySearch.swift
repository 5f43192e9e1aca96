extension RandomAccessCollection {
  /// The index of the first element for which the predicate holds, or the end index if there is none. The predicate must also
  /// hold for all elements after that one. O(log N).
  @inlinable package func partitioningIndex<Failure: Error>(
    where belongsInSecondPartition: (Element) throws(Failure) -> Bool
  ) throws(Failure) -> Index {
    var remaining = count
    var start = startIndex
    while remaining > 0 {
      let half = remaining / 2
      let middle = index(start, offsetBy: half)
      if try belongsInSecondPartition(self[middle]) {
        remaining = half
      } else {
        start = index(after: middle)
        remaining -= half + 1
      }
    }
    return start
  }
}
