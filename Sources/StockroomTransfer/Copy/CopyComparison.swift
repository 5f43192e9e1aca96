import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Determines when one entry counts as a copy of another.
struct CopyComparison: Sendable {
  /// Whether the target stores timestamps from the source.
  let comparesTimes: Bool

  /// The maximum difference, in nanoseconds, of equal times in an engine that does not have sequence numbers. With
  /// sequence numbers, times must be equal, or rounded as file systems do.
  private static let tolerance: Int64 = 2_000_000

  /// Whether the two entries have the same key and, if times are compared, were created at the same time.
  func isSameEntry(_ source: ListedEntry, _ target: ListedEntry) -> Bool {
    source.key == target.key
      && (!comparesTimes || isSame(source.times.createdAt, target.times.createdAt, target))
  }

  /// Whether the entry of the target is a copy of the entry of the source, so that nothing must be written.
  func isCopy(_ source: ListedEntry, _ target: ListedEntry) -> Bool {
    isSameEntry(source, target) && source.hasSameValue(as: target)
      && (!comparesTimes || isSame(source.times.updatedAt, target.times.updatedAt, target))
  }

  /// Whether the target is empty, or contains the beginning of a copy of the source: at least half of its entries are
  /// copies, since the source may have changed in the meantime. If times are compared, entries that the source no
  /// longer has are not counted: they may have expired.
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

  /// The maximum difference, in nanoseconds, of two times that are the same or adjacent as a `Date`.
  private static let slack: Int64 = 250
  /// The units of times in file systems, in nanoseconds: NTFS, file systems that store microseconds, some network file
  /// systems, exFAT, old file systems, FAT.
  private static let units: [Int64] = [100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000]
  private static let dates =
    Date(timeIntervalSince1970: Double(Int32.min))...Date(timeIntervalSince1970: Double(Int32.max))
}
