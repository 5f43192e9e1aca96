import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// An archive whose entries are read once the whole archive has been verified.
///
/// ```swift
/// let reader = try await ArchiveReader(url)
/// print(reader.summary.entryCount)
/// while let entries = try await reader.nextEntries() { … }
/// ```
///
/// Reads on its own thread. It holds as many entries in memory as one call returns, and a megabyte or two.
public final class ArchiveReader: Sendable {
  /// The default limit for the size of a value: 1 GiB, which is more than SQLite can hold.
  public static let defaultMaximumValueSize = 1 << 30
  /// The minimum number of bytes that ``nextEntries()`` returns, unless the archive ends, and approximately
  /// the maximum.
  static let batchSize = 8 << 20
  /// The cost of an entry in addition to its key and its value.
  private static let entryCost = 128

  /// The contents of the archive.
  public let summary: ArchiveSummary
  private let input: ArchiveInput
  private let scanner: MutexProtected<ArchiveScanner>
  private let thread: DedicatedThread

  /// Opens an archive and verifies all of it. O(size of the archive).
  ///
  /// - Parameters:
  ///   - url: The location of the archive.
  ///   - maximumValueSize: The maximum size of a value. An archive of a few kilobytes can contain a value of
  ///     gigabytes, which would be in memory as a whole when it is read.
  /// - Throws: `StorageError` with code `corrupted` if anything in the archive has been changed, if it is
  ///   truncated or has data after its end; `unsupported` if it is not an archive, or has another version of
  ///   the format; `valueTooLarge`; `permissionDenied` or `io` if it cannot be read; `CancellationError`.
  public convenience init(
    _ url: URL, maximumValueSize: Int = ArchiveReader.defaultMaximumValueSize
  ) async throws {
    try await self.init(maximumValueSize) { try ArchiveInput(url, $0) }
  }

  /// Reads an archive from a descriptor, such as standard input, and verifies all of it.
  ///
  /// A source that is not a file, such as a pipe, is copied to an unnamed temporary file in the process, since it is
  /// read twice. The caller must close the descriptor.
  ///
  /// Throws as ``init(_:maximumValueSize:)``, and `diskFull` if there is no space for the copy.
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

  /// The next entries, in the order in which their keys were first written: about 8 MiB of them, or one that
  /// is larger. Nil after the last entries.
  ///
  /// - Throws: `StorageError` with code `corrupted` if the file has been changed since it was verified, or `io`. After
  ///   such an error every later call throws it too, since entries would otherwise be missing. `CancellationError` if
  ///   the task is cancelled before the call reads anything; a later call then continues.
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
