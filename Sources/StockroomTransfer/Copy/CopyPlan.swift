import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The steps that make a place equal to another: first the removals, then existing entries, then new ones.
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

/// Determines when one entry counts as a copy of another.
struct CopyComparison: Sendable {
  /// Whether the target stores timestamps from the source.
  let comparesTimes: Bool

  /// The precision that an engine must have. Engines that distinguish entries by sequence numbers store whole
  /// nanoseconds.
  private static let tolerance: Int64 = 2_000_000

  /// Whether the two entries were created at the same time.
  func isSameEntry(_ source: ListedEntry, _ target: ListedEntry) -> Bool {
    source.key == target.key
      && (!comparesTimes || isSame(source.times.createdAt, target.times.createdAt, target))
  }

  /// Whether nothing must be written.
  func isCopy(_ source: ListedEntry, _ target: ListedEntry) -> Bool {
    isSameEntry(source, target) && source.hasSameValue(as: target)
      && (!comparesTimes || isSame(source.times.updatedAt, target.times.updatedAt, target))
  }

  /// Whether the target is the beginning of a copy of the source: half of it is, since the source may have
  /// changed in the meantime. If timestamps distinguish the entries, those that the source no longer has do
  /// not count: they may have expired.
  func isBegunCopy(_ target: EntryListing, of source: EntryListing) -> Bool {
    let sources = source.byKey
    var (same, compared) = (0, 0)
    for entry in target.entries {
      guard let original = sources[entry.key] else { continue }
      compared += 1
      if isSameEntry(original, entry), comparesTimes || original.hasSameValue(as: entry) { same += 1 }
    }
    if !comparesTimes { compared = target.entries.count }
    return target.entries.isEmpty || same > 0 && 2 * same >= compared
  }

  private func isSame(_ source: Timestamp, _ target: Timestamp, _ entry: ListedEntry) -> Bool {
    if entry.sequence != nil { return source.date == target.date || Self.isStored(source, as: target) }
    return abs(source.nanoseconds - target.nanoseconds) <= Self.tolerance
  }

  /// Whether a file system may have stored one time as the other. File systems truncate times to their units,
  /// and many do not support times beyond the seconds that 32 bits can count.
  private static func isStored(_ time: Timestamp, as stored: Timestamp) -> Bool {
    let difference = time.nanoseconds - stored.nanoseconds
    let isCutOff = units.contains { unit in
      let rest = (stored.nanoseconds + slack) % unit
      return (rest < 0 ? rest + unit : rest) <= 2 * slack && (-slack..<unit + slack).contains(difference)
    }
    return isCutOff || stored.date == Timestamp(min(max(time.date, dates.lowerBound), dates.upperBound)).date
  }

  /// The maximum difference, in nanoseconds, of two moments that are the same or adjacent as a `Date`.
  private static let slack: Int64 = 250
  /// In nanoseconds: the units of NTFS, of file systems that store microseconds, of some network file
  /// systems, of exFAT, of old ones, of FAT.
  private static let units: [Int64] = [100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000]
  private static let dates =
    Date(timeIntervalSince1970: Double(Int32.min))...Date(timeIntervalSince1970: Double(Int32.max))
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

  /// The plan for some keys only. The order is not checked, but an entry that was removed and written again
  /// in the source is so in the target, too.
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
  ///   - merged: The entries that this copy has written before. Of these, entries that the target did not
  ///     have then and the source no longer has are removed.
  ///   - interrupted: Entries that were updated then were written by a merge, and not by others.
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
