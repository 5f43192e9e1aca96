import StockroomCore

/// The steps that make a target equal to a source, in this order: removals, replacements of existing entries, new
/// entries.
struct CopyPlan: Sendable {
  var removed: [CacheKey] = []
  /// The entries that are replaced in their positions.
  var changed: [ListedEntry] = []
  /// The entries that are appended, in this order.
  var missing: [ListedEntry] = []

  var isEmpty: Bool { removed.isEmpty && changed.isEmpty && missing.isEmpty }

  var writtenCount: Int { changed.count + missing.count }

  /// Whether there are entries to remove, and none to write.
  var isOfRemovals: Bool { writtenCount == 0 && !removed.isEmpty }

  private init() {}
}

extension CopyPlan {
  /// The plan after which the target has the entries of the source, in the same order, and nothing else.
  ///
  /// Entries of the target that match the beginning of the source stay: all of them, if a copy was
  /// interrupted. An entry in another position than in the source is removed and written again, since new
  /// entries come last.
  init(from source: EntryListing, to target: EntryListing, _ comparison: CopyComparison) {
    // A target whose timestamps are not those of the source has no order that could be compared.
    guard comparison.comparesTimes else {
      self.init(ofSome: source, to: target, comparison)
      return
    }
    self.init()
    var next = 0
    for entry in target.entries {
      guard next < source.entries.count, comparison.isSameEntry(source.entries[next], entry) else {
        removed.append(entry.key)
        continue
      }
      if !comparison.isCopy(source.entries[next], entry) { changed.append(source.entries[next]) }
      next += 1
    }
    missing = Array(source.entries[next...])
  }

  /// The plan for some keys only. The order is not checked, but an entry that was removed and written again in the
  /// source is also removed and written again in the target.
  init(ofSome source: EntryListing, to target: EntryListing, _ comparison: CopyComparison) {
    self.init()
    var targets = target.byKey
    for entry in source.entries {
      guard let old = targets.removeValue(forKey: entry.key) else {
        missing.append(entry)
        continue
      }
      if !comparison.isSameEntry(entry, old) {
        removed.append(entry.key)
        missing.append(entry)
      } else if !comparison.isCopy(entry, old) {
        changed.append(entry)
      }
    }
    removed += target.entries.map(\.key).filter { targets[$0] != nil }
  }

  /// The plan that adds to the target the entries that it lacks, or that are older there.
  ///
  /// - Parameters:
  ///   - merged: The entries that this copy has written before. Those that the target did not have then, and that the
  ///     source no longer has, are removed.
  ///   - interrupted: The times at which interrupted merges wrote. An entry that was updated at one of them counts as
  ///     written by a merge.
  init(
    merging source: EntryListing, into target: EntryListing, _ merged: MergedEntries,
    _ interrupted: InterruptedMerges, _ comparison: CopyComparison
  ) {
    self.init()
    let targets = target.byKey
    var sources: Set<CacheKey> = []
    for entry in source.entries {
      sources.insert(entry.key)
      guard let old = targets[entry.key] else {
        missing.append(entry)
        continue
      }
      let isOurs =
        merged.mayContain(old, comparison) || interrupted.contain(old.times.updatedAt)
      let isLater = old.times.updatedAt > entry.times.updatedAt && !isOurs
      if !isLater, !comparison.isCopy(entry, old) { changed.append(entry) }
    }
    removed = merged.added.filter { key in
      guard !sources.contains(key), let old = targets[key] else { return false }
      return merged.mayContain(old, comparison)
    }.sorted()
  }
}
