import StockroomCore

/// The entries that a merge has written to the target, or may have written: a call that throws may have taken
/// effect.
struct MergedEntries: Sendable {
  /// The last entry that was written under each key.
  private var written: [CacheKey: ListedEntry] = [:]
  /// The entries of later calls, which have thrown an error or are in progress.
  private var attempted: [CacheKey: [ListedEntry]] = [:]
  /// The keys in ``written`` and ``attempted`` that the target did not have before.
  private(set) var added: Set<CacheKey> = []

  /// Whether an entry of the target may have been written by the merge.
  func mayContain(_ entry: ListedEntry, _ comparison: CopyComparison) -> Bool {
    if let written = written[entry.key], comparison.isCopy(written, entry) { return true }
    return attempted[entry.key]?.contains { comparison.isCopy($0, entry) } ?? false
  }

  /// The entries with these keys.
  func filtered(by keys: [CacheKey]) -> MergedEntries {
    var filtered = MergedEntries()
    for key in keys {
      filtered.written[key] = written[key]
      filtered.attempted[key] = attempted[key]
      if added.contains(key) { filtered.added.insert(key) }
    }
    return filtered
  }

  /// Call it before entries are written.
  ///
  /// - Parameter areNew: Whether the target does not have these entries.
  mutating func beginWriting(_ entries: [ListedEntry], areNew: Bool) {
    for entry in entries {
      if areNew { added.insert(entry.key) }
      // An entry that fails repeatedly is recorded once.
      let isNoted = attempted[entry.key]?.contains { $0.times == entry.times && $0.hasSameValue(as: entry) }
      if isNoted != true { attempted[entry.key, default: []].append(entry) }
    }
  }

  /// Call it once they have been written.
  mutating func endWriting(_ entries: [ListedEntry]) {
    for entry in entries {
      written[entry.key] = entry
      attempted[entry.key] = nil
    }
  }

  /// Call it once an entry has been removed.
  mutating func remove(_ key: CacheKey) {
    written[key] = nil
    attempted[key] = nil
    added.remove(key)
  }
}
