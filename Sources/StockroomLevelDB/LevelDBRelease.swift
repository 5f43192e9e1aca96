import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The release of a directory after the last reference to its engine was dropped.
///
/// LevelDB cannot be closed before a compaction in progress has ended. The thread that drops the reference does not
/// wait for that (rule C5); the next opening does, in this process or in another one (rule O4). It detects the release
/// by an exclusive lock on the file that marks the directory. The lock ends with the process at the latest.
struct LevelDBRelease: Sendable {
  private let file: FileDescriptor

  /// Begins the release of the directory, which the caller has locked. Nil if the file is absent or locked.
  static func begin(in files: LevelDBFiles) throws -> LevelDBRelease? {
    guard let file = try open(in: files), try FileLock.tryAcquire(file.number, path: file.path) else {
      return nil
    }
    return LevelDBRelease(file: file)
  }

  /// Ends the release. Call it once the directory has been unlocked.
  func end() {
    FileLock.release(file.number)
    file.release()
  }

  /// Whether the engine that has locked the directory is being released.
  static func isInProgress(in files: LevelDBFiles) throws -> Bool {
    guard let file = try open(in: files) else { return false }
    guard try FileLock.tryAcquire(file.number, path: file.path) else { return true }
    FileLock.release(file.number)
    return false
  }

  private static func open(in files: LevelDBFiles) throws -> FileDescriptor? {
    try files.directory.openFile(LevelDBDirectoryLock.identityName, O_RDONLY)
  }
}

extension LevelDBConnection {
  /// Closes the database after the last reference to the engine was dropped, on the engine's thread, which ends
  /// by itself (rule C5).
  func release(on thread: DedicatedThread) {
    do {
      // Does not lock the state, whose mutex a compaction holds.
      if let release = try LevelDBRelease.begin(in: files) {
        do {
          try thread.enqueue { [self] in
            close(writingMarker: false)
            release.end()
          }
        } catch {
          release.end()
          throw error
        }
        return thread.stopWithoutWaiting()
      }
    } catch {
      // The database has been closed already, or no descriptor or thread can be created. Then this waits, since
      // otherwise everything would stay open.
    }
    thread.stop()
    close(writingMarker: false)
  }
}
