import StockroomCore

/// The keys of a table in byte order, kept so while they come and go.
///
/// A sorted array of sorted chunks. With N keys in chunks of at most C, adding or removing one costs
/// O(log N + C) and now and then O(N / C), which at a million keys is still a fraction of a microsecond. A copy
/// costs nothing until it is changed, and then O(N / C) and one chunk for each change.
struct SortedKeys: Sendable {
  private static let chunkCapacity = 256

  /// No chunk is empty.
  private var chunks: [[CacheKey]] = []

  /// Adds a key that is not there.
  mutating func insert(_ key: CacheKey) {
    guard !chunks.isEmpty else {
      chunks.append([key])
      return
    }
    let chunk = max(0, chunks.partition { $0[0] <= key } - 1)
    let place = chunks[chunk].partition { $0 < key }
    chunks[chunk].insert(key, at: place)
    if chunks[chunk].count > Self.chunkCapacity { split(chunk, hasAppended: place == Self.chunkCapacity) }
  }

  /// Takes out a key that is there.
  mutating func remove(_ key: CacheKey) {
    let chunk = chunks.partition { $0[0] <= key } - 1
    chunks[chunk].remove(at: chunks[chunk].partition { $0 < key })
    if chunks[chunk].isEmpty { chunks.remove(at: chunk) }
  }

  /// Calls `body` with the keys at or after `start`, in order, until it returns false.
  func forEach(from start: CacheKey, _ body: (CacheKey) throws -> Bool) rethrows {
    let first = max(0, chunks.partition { $0[0] <= start } - 1)
    for chunk in chunks[min(first, chunks.count)...] {
      let place = chunk[0] < start ? chunk.partition { $0 < start } : 0
      for key in chunk[place...] {
        guard try body(key) else { return }
      }
    }
  }

  /// Halves a chunk that has grown too long. One that grows at its end, as with ascending keys, stays full.
  private mutating func split(_ chunk: Int, hasAppended: Bool) {
    let middle = hasAppended ? chunks[chunk].count - 1 : chunks[chunk].count / 2
    let upper = Array(chunks[chunk][middle...])
    chunks[chunk].removeSubrange(middle...)
    chunks.insert(upper, at: chunk + 1)
  }
}

extension Array {
  /// The index of the first element for which the predicate is false, where it is true for all before it and
  /// false for all after it. O(log N).
  fileprivate func partition(_ isBefore: (Element) -> Bool) -> Int {
    var (low, high) = (0, count)
    while low < high {
      let middle = (low + high) / 2
      if isBefore(self[middle]) { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
