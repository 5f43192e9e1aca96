import StockroomCore

extension DiskConnection {
  /// A stream of the changes from now on. Call it on the engine's own thread.
  func subscribe(of owner: ObjectIdentifier, without origin: ChangeOrigin?) throws -> StorageChanges {
    try feed.subscribe(without: origin, of: owner) {
      DiskChangeSource(self)
    } afterCommits: {
      // Commits are made under the lock.
      try withLock {}
    }
  }
}

/// Detects the changes of other engines, which count their commits, and those of other programs, which only
/// put files there.
private final class DiskChangeSource: ChangeSource {
  private let connection: DiskConnection

  init(_ connection: DiskConnection) { self.connection = connection }

  /// Except on Apple's systems, the directory shows most commits that are not in the log.
  var writtenFiles: [String] {
    #if canImport(Darwin)
      [connection.state.file.path]
    #else
      []
    #endif
  }

  #if !canImport(Darwin)
    /// The directory does not show commits of long keys, whose files are in directories below it.
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
