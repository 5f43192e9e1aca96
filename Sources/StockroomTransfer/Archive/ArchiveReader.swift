import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An archive whose entries are read, once all of it has been verified.
///
/// ```swift
/// let reader = try await ArchiveReader(url)
/// print(reader.summary.entryCount)
/// while let entries = try await reader.nextEntries() { … }
/// ```
///
/// Reads on a thread of its own. In memory there are as many entries as one call returns, and a megabyte or two.
public final class ArchiveReader: Sendable {
  /// The longest value that is accepted unless the caller says otherwise: 1 GiB, which is more than SQLite can hold.
  public static let defaultMaximumValueSize = 1 << 30
  /// How many bytes ``nextEntries()`` returns at least, unless the archive ends, and hardly more.
  static let batchSize = 8 << 20
  /// What an entry costs beside its key and its value.
  private static let entryCost = 128

  /// What is in the archive.
  public let summary: ArchiveSummary
  private let input: ArchiveInput
  private let scanner: MutexProtected<ArchiveScanner>
  private let thread: DedicatedThread

  /// Opens an archive and verifies all of it. O(size of the archive).
  ///
  /// - Parameters:
  ///   - url: Where the archive is.
  ///   - maximumValueSize: The longest value that is accepted. An archive of a few kilobytes can hold a value of gigabytes, which
  ///     would be in memory as a whole when it is read.
  /// - Throws: `StorageError` with code `corrupted` if anything in the archive is not as it was written, if it is truncated or
  ///   something follows its end; `unsupported` if it is no archive, or one of another version of the format;
  ///   `valueTooLarge`; `permissionDenied` or `io` if it cannot be read; `CancellationError`.
  public convenience init(
    _ url: URL, maximumValueSize: Int = ArchiveReader.defaultMaximumValueSize
  ) async throws {
    try await self.init(maximumValueSize) { try ArchiveInput(url, $0) }
  }

  /// Reads an archive from a descriptor, such as standard input, and verifies all of it.
  ///
  /// What is no file, such as a pipe, is copied to a temporary file without a name meanwhile, since it is read twice. The
  /// descriptor stays the caller's.
  ///
  /// Throws as ``init(_:maximumValueSize:)``, and `diskFull` if there is no room for the copy.
  public convenience init(
    descriptor: Int32, maximumValueSize: Int = ArchiveReader.defaultMaximumValueSize
  ) async throws {
    try await self.init(maximumValueSize) { try ArchiveInput(descriptor: descriptor, $0) }
  }

  private init(
    _ maximumValueSize: Int, open: @escaping @Sendable (CancellationFlag) throws -> ArchiveInput
  ) async throws {
    let thread = DedicatedThread()
    self.thread = thread
    do {
      (input, summary) = try await thread.runCancellably { flag in
        let input = try open(flag)
        return (input, try Self.verify(input, maximumValueSize, flag))
      }
    } catch {
      thread.stop()
      throw error
    }
    input.rewind()
    scanner = MutexProtected(ArchiveScanner(input, keepsValues: true, maximumValueSize: maximumValueSize))
  }

  deinit { thread.stop() }

  /// The next entries, in the order in which their keys were first written: about 8 MiB of them, or one that is larger. Nil after the
  /// last ones.
  ///
  /// - Throws: `StorageError` with code `corrupted` if the file has been changed since it was verified; `io`;
  ///   `CancellationError`. What could not be read is thrown by every later call too, as entries would be missing otherwise.
  public func nextEntries() async throws -> [StorageEntry]? {
    try Task.checkCancellation()
    return try await thread.run { [self] in
      try scanner.withLock { scanner in
        if let failure = scanner.failure { throw failure }
        var entries: [StorageEntry] = []
        var size = 0
        do {
          while size < Self.batchSize, let more = try scanner.nextEntries() {
            size += more.reduce(0) { $0 + $1.data.count + $1.key.value.utf8.count + Self.entryCost }
            entries += more
          }
          if scanner.summary != nil { try input.checkUnchanged() }
        } catch {
          scanner.failure = error
          throw error
        }
        return entries.isEmpty ? nil : entries
      }
    }
  }

  private static func verify(
    _ input: ArchiveInput, _ maximumValueSize: Int, _ flag: CancellationFlag
  ) throws -> ArchiveSummary {
    var scanner = ArchiveScanner(input, keepsValues: false, maximumValueSize: maximumValueSize)
    while try scanner.nextEntries() != nil { try flag.check() }
    try input.checkUnchanged()
    guard let summary = scanner.summary else {
      throw StorageError(.corrupted, "The archive \(input.path) has no end.")
    }
    return summary
  }
}

/// What concerns an archive as a whole.
public enum Archive {
  /// Reads all of an archive and throws unless everything in it is as it was written. Writes nothing.
  ///
  /// O(size of the archive), with a megabyte or two in memory.
  ///
  /// - Returns: What is in it.
  /// - Throws: as ``ArchiveReader/init(_:maximumValueSize:)``.
  @discardableResult
  public static func verify(
    _ url: URL, maximumValueSize: Int = ArchiveReader.defaultMaximumValueSize
  ) async throws -> ArchiveSummary {
    try await ArchiveReader(url, maximumValueSize: maximumValueSize).summary
  }
}
