import StockroomCore

extension DiskConnection {
  /// A stream of the changes from now on. On the engine's own thread.
  func subscribe(of owner: ObjectIdentifier, without origin: ChangeOrigin?) throws -> StorageChanges {
    try feed.subscribe(without: origin, of: owner) {
      DiskChangeSource(self)
    } afterCommits: {
      // Commits are made under the lock.
      try withLock {}
    }
  }
}

/// How the changes of other engines are noticed, which count their commits, and those of other programs, which only put files there.
private final class DiskChangeSource: ChangeSource {
  private let connection: DiskConnection

  init(_ connection: DiskConnection) { self.connection = connection }

  /// Elsewhere than on Apple's systems, the directory tells of commits that are not in the log.
  var writtenFiles: [String] {
    #if canImport(Darwin)
      [connection.state.file.path]
    #else
      []
    #endif
  }

  var entryDirectory: String? { connection.entries.path }

  func latestCommit() throws -> UInt64? { try connection.state.commitNumber() }

  func key(ofFile name: [UInt8]) -> CacheKey? {
    // With the zero byte at its end that a name has in a listing.
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
