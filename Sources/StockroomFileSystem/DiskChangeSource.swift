import StockroomCore

extension DiskConnection {
  /// A stream of the changes from now on. Call it on the engine's own thread.
  func subscribe(of owner: ObjectIdentifier, without origin: ChangeOrigin?) throws -> StorageChanges {
    try feed.subscribe(without: origin, of: owner) {
      DiskChangeSource(self)
    } afterCommits: {
      // Commits hold the lock, so taking it waits for them.
      try withLock {}
    }
  }
}

/// Detects changes by other engines, which count their commits, and by other programs, which only change files.
private final class DiskChangeSource: ChangeSource {
  private let connection: DiskConnection

  init(_ connection: DiskConnection) { self.connection = connection }

  /// Except on Apple's systems, the watch on the directory detects most commits that are not in the log.
  var writtenFiles: [String] {
    #if canImport(Darwin)
      [connection.state.file.path]
    #else
      []
    #endif
  }

  #if !canImport(Darwin)
    /// The watch on the directory does not detect commits of long keys, whose files are in directories below it.
    var filesWrittenWithoutLog: [String] {
      let path = connection.state.file.path
      do {
        // It cannot be watched once the whole place has been removed.
        return try FileIdentity(path: path) == nil ? [] : [path]
      } catch {
        // Watching it fails as well, and is tried again.
        return [path]
      }
    }
  #endif

  var entryDirectory: String? { connection.entries.path }

  func latestCommit() throws -> UInt64? { try connection.state.commitNumber() }

  func key(ofFile name: [UInt8]) -> CacheKey? {
    // Including the terminating zero byte of a name in a listing.
    (name + [0]).withUnsafeBytes { bytes in
      var key: CacheKey?
      FileNamePrefix().withKey(file: UnsafeRawBufferPointer(rebasing: bytes.dropLast())) {
        key = CacheKey(utf8: $0)
      }
      return key
    }
  }

  func close() {}
}
