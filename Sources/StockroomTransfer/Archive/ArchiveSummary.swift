#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// The contents of an archive.
public struct ArchiveSummary: Sendable, Hashable {
  /// The version of the format.
  public var formatVersion: Int
  /// When writing the archive began.
  public var createdAt: Date
  /// Whether the entries are from one snapshot. If not, others may have written while they were read.
  public var isSnapshot: Bool
  /// The number of entries.
  public var entryCount: Int
  /// The total number of bytes of all keys and values.
  public var contentSize: Int
  /// The size of the archive in bytes.
  public var archiveSize: Int

  /// Creates a summary.
  public init(
    formatVersion: Int, createdAt: Date, isSnapshot: Bool, entryCount: Int, contentSize: Int,
    archiveSize: Int
  ) {
    self.formatVersion = formatVersion
    self.createdAt = createdAt
    self.isSnapshot = isSnapshot
    self.entryCount = entryCount
    self.contentSize = contentSize
    self.archiveSize = archiveSize
  }
}

/// The progress of a dump or a restore.
public struct ArchiveProgress: Sendable, Hashable {
  /// The number of entries that have been processed.
  public var entryCount: Int
  /// The bytes of their keys and values.
  public var contentSize: Int
  /// The total number of entries; nil if it is not known, such as while dumping.
  public var totalEntryCount: Int?

  /// Creates a progress value.
  public init(entryCount: Int, contentSize: Int, totalEntryCount: Int? = nil) {
    self.entryCount = entryCount
    self.contentSize = contentSize
    self.totalEntryCount = totalEntryCount
  }
}
