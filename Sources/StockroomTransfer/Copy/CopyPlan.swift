import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What makes one place like another: first the removals, then what is there already, then what is new.
struct CopyPlan: Sendable {
  var removed: [CacheKey] = []
  /// What is replaced in its place.
  var changed: [ListedEntry] = []
  /// What is written behind everything else, in this order.
  var missing: [ListedEntry] = []

  var isEmpty: Bool { removed.isEmpty && changed.isEmpty && missing.isEmpty }

  var writtenCount: Int { changed.count + missing.count }

  /// Whether there is something to remove, and nothing to write.
  var isOfRemovals: Bool { writtenCount == 0 && !removed.isEmpty }

  private init() {}
}

/// How much of two entries has to be the same for one to be a copy of the other.
struct CopyComparison: Sendable {
  /// Whether the target stores the times of others.
  let comparesTimes: Bool

  /// What is as exact as an engine has to be. Engines that tell entries apart by sequences store whole nanoseconds.
  private static let tolerance: Int64 = 2_000_000

  /// Whether the two were created at the same time.
  func isSameEntry(_ source: ListedEntry, _ target: ListedEntry) -> Bool {
    source.key == target.key
      && (!comparesTimes || isSame(source.times.createdAt, target.times.createdAt, target))
  }

  /// Whether nothing has to be written.
  func isCopy(_ source: ListedEntry, _ target: ListedEntry) -> Bool {
    isSameEntry(source, target) && source.hasSameValue(as: target)
      && (!comparesTimes || isSame(source.times.updatedAt, target.times.updatedAt, target))
  }

  /// Whether what is in the target is the beginning of a copy of the source: half of it is, since the source may have changed meanwhile.
  /// Where the times tell entries apart, what the source has no more says nothing: it may have expired.
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

  /// Whether a file system may have made the one time of the other. What is smaller than their units they cut off, and many have no
  /// times beyond the seconds that 32 bits can count.
  private static func isStored(_ time: Timestamp, as stored: Timestamp) -> Bool {
    let difference = time.nanoseconds - stored.nanoseconds
    let isCutOff = units.contains { unit in
      let rest = (stored.nanoseconds + slack) % unit
      return (rest < 0 ? rest + unit : rest) <= 2 * slack && (-slack..<unit + slack).contains(difference)
    }
    return isCutOff || stored.date == Timestamp(min(max(time.date, dates.lowerBound), dates.upperBound)).date
  }

  /// As much as two moments differ, in nanoseconds, that are the same or next to one another as a `Date`.
  private static let slack: Int64 = 250
  /// In nanoseconds: of NTFS, of those that store microseconds, of some network file systems, of exFAT, of old ones, of FAT.
  private static let units: [Int64] = [100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000]
  private static let dates =
    Date(timeIntervalSince1970: Double(Int32.min))...Date(timeIntervalSince1970: Double(Int32.max))
}

extension CopyPlan {
  /// What leaves in the target what is in the source, in the same order, and nothing else.
  ///
  /// What the target has of the beginning of the source stays: all of it, if a copy was ended on the way. What is in another place
  /// than in the source is removed and written again, since new entries come last.
  init(from source: EntryListing, to target: EntryListing, _ comparison: CopyComparison) {
    // A target whose times are not those of the source has no order that could be compared.
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

  /// What leaves in the target what is in the source, of some keys. The order is not looked at, but what was removed and written
  /// again in the source is so in the target.
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

  /// What brings into the target what it has not, or not as late.
  ///
  /// - Parameters:
  ///   - merged: What this copy has written before. What the target did not have then and the source has no longer is removed.
  ///   - interrupted: What was updated then was written by a merge, and not by others.
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
