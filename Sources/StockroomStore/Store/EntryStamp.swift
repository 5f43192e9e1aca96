import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Distinguishes one write of an entry from other writes of the same entry.
struct EntryStamp: Equatable, Sendable {
  private let sequence: UInt64?
  private let updatedAt: Date
  /// Needed in addition to the time, since two writes may have the same time.
  private let checksum: UInt32

  init(_ entry: StorageEntry) {
    (sequence, updatedAt) = (entry.sequence, entry.updatedAt)
    checksum = entry.data.withUnsafeBytes { CRC32C.checksum($0) }
  }

  /// The stamps of the entries that may have been written since this time, according to the clock of their writer.
  ///
  /// At most `StorageChanges.defaultKeyLimit`, those of the latest writes: a feed reports a change of more keys as `everything`.
  static func recent(_ entries: [StorageEntry], since moment: Timestamp) -> [CacheKey: EntryStamp] {
    // The time of an entry is when its write began; the write was acknowledged later.
    let start = moment.date.addingTimeInterval(-1)
    var recent = entries.filter { $0.updatedAt >= start }
    if recent.count > StorageChanges.defaultKeyLimit {
      recent.sort { $0.updatedAt > $1.updatedAt }
      recent.removeLast(recent.count - StorageChanges.defaultKeyLimit)
    }
    return Dictionary(recent.map { ($0.key, EntryStamp($0)) }) { $1 }
  }
}
