/// A set of keys in byte order, to which keys can be added and from which they can be removed.
///
/// A sorted array of sorted chunks. With N keys in chunks of at most C, adding or removing one costs O(log N
/// + C) and occasionally O(N / C), which at a million keys is still a fraction of a microsecond. A copy costs
/// nothing until it is changed, and then O(N / C) and one chunk for each change.
package struct SortedKeys: Sendable {
  private static let chunkCapacity = 256

  /// No chunk is empty.
  fileprivate var chunks: [[CacheKey]] = []

  package init() {}

  /// Creates a set of distinct keys that are already in byte order. O(N).
  package init(sorted keys: [CacheKey]) {
    chunks = stride(from: 0, to: keys.count, by: Self.chunkCapacity).map { start in
      Array(keys[start..<min(start + Self.chunkCapacity, keys.count)])
    }
  }

  /// Adds a key, unless it is already in the set.
  package mutating func insert(_ key: CacheKey) {
    guard !chunks.isEmpty else {
      chunks.append([key])
      return
    }
    let chunk = max(0, chunks.partitioningIndex { key < $0[0] } - 1)
    let place = chunks[chunk].partitioningIndex { !($0 < key) }
    if place < chunks[chunk].count, chunks[chunk][place] == key { return }
    chunks[chunk].insert(key, at: place)
    if chunks[chunk].count > Self.chunkCapacity { split(chunk, hasAppended: place == Self.chunkCapacity) }
  }

  /// Removes a key, if it is in the set.
  package mutating func remove(_ key: CacheKey) {
    let chunk = chunks.partitioningIndex { key < $0[0] } - 1
    guard chunk >= 0 else { return }
    let place = chunks[chunk].partitioningIndex { !($0 < key) }
    guard place < chunks[chunk].count, chunks[chunk][place] == key else { return }
    chunks[chunk].remove(at: place)
    if chunks[chunk].isEmpty { chunks.remove(at: chunk) }
  }

  /// Calls `body` with the keys at or after `start`, in order, until it returns false. O(log N + R) for R calls.
  package func forEach(from start: CacheKey, _ body: (CacheKey) throws -> Bool) rethrows {
    let first = max(0, chunks.partitioningIndex { start < $0[0] } - 1)
    for chunk in chunks[min(first, chunks.count)...] {
      let place = chunk[0] < start ? chunk.partitioningIndex { !($0 < start) } : 0
      for key in chunk[place...] {
        guard try body(key) else { return }
      }
    }
  }

  /// The first keys of the range, at most `limit` of them. O(log N + limit).
  package func keys(in range: KeyRange, limit: Int) -> [CacheKey] {
    let cursor = KeyRangeCursor(range)
    var found: [CacheKey] = []
    if limit <= 0 { return found }
    forEach(from: CacheKey(contiguous: String(decoding: cursor.start, as: UTF8.self))) { key in
      key.withUTF8 { cursor.collect($0, into: &found, limit: limit) { key } }
    }
    return found
  }

  /// Splits a chunk that has become too long. A chunk that grows at its end, as with ascending keys, stays
  /// full.
  private mutating func split(_ chunk: Int, hasAppended: Bool) {
    let middle = hasAppended ? chunks[chunk].count - 1 : chunks[chunk].count / 2
    let upper = Array(chunks[chunk][middle...])
    chunks[chunk].removeSubrange(middle...)
    chunks.insert(upper, at: chunk + 1)
  }
}

/// Iterates over a set of keys in order, as far as needed.
package struct SortedKeyCursor {
  private let chunks: [[CacheKey]]
  private var chunk: Int
  private var place = 0

  /// Starts at the first key that is not before `start`. O(log N).
  package init(through keys: SortedKeys, from start: CacheKey) {
    chunks = keys.chunks
    chunk = max(0, chunks.partitioningIndex { start < $0[0] } - 1)
    if chunk < chunks.count { place = chunks[chunk].partitioningIndex { !($0 < start) } }
    goToNextChunkAtEnd()
  }

  /// The current key. Nil after the last one.
  package var key: CacheKey? { chunk < chunks.count ? chunks[chunk][place] : nil }

  /// Moves to the next key, if there is one. O(1).
  package mutating func advance() {
    place += 1
    goToNextChunkAtEnd()
  }

  private mutating func goToNextChunkAtEnd() {
    guard chunk < chunks.count, place >= chunks[chunk].count else { return }
    (chunk, place) = (chunk + 1, 0)
  }
}
