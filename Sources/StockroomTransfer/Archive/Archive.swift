#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// Operations on an archive as a whole.
public enum Archive {
  /// Reads all of an archive and throws if anything in it has been changed. Writes nothing.
  ///
  /// O(size of the archive), with a megabyte or two in memory.
  ///
  /// - Returns: The contents of the archive.
  /// - Throws: as ``ArchiveReader/init(_:maximumValueSize:)``.
  @discardableResult
  public static func verify(
    _ url: URL, maximumValueSize: Int = ArchiveReader.defaultMaximumValueSize
  ) async throws -> ArchiveSummary {
    try await ArchiveReader(url, maximumValueSize: maximumValueSize).summary
  }
}
