#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// What is in an archive.
public struct ArchiveSummary: Sendable, Hashable {
  /// The version of the format.
  public var formatVersion: Int
  /// When the archive was begun.
  public var createdAt: Date
  /// Whether the entries are those of one snapshot. Otherwise others may have written while they were read.
  public var isOneMoment: Bool
  /// The number of entries.
  public var entryCount: Int
  /// The bytes of all keys and values.
  public var contentSize: Int
  /// The bytes of the archive.
  public var archiveSize: Int

  /// A summary with these parts.
  public init(
    formatVersion: Int, createdAt: Date, isOneMoment: Bool, entryCount: Int, contentSize: Int,
    archiveSize: Int
  ) {
    self.formatVersion = formatVersion
    self.createdAt = createdAt
    self.isOneMoment = isOneMoment
    self.entryCount = entryCount
    self.contentSize = contentSize
    self.archiveSize = archiveSize
  }
}

/// How far a dump or a restore has got.
public struct ArchiveProgress: Sendable, Hashable {
  /// The entries that are done.
  public var entryCount: Int
  /// The bytes of their keys and values.
  public var contentSize: Int
  /// How many entries there are in all; nil if that is not known, as while dumping.
  public var totalEntryCount: Int?

  /// A progress with these parts.
  public init(entryCount: Int, contentSize: Int, totalEntryCount: Int? = nil) {
    self.entryCount = entryCount
    self.contentSize = contentSize
    self.totalEntryCount = totalEntryCount
  }
}
