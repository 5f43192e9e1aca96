import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Detects that the directory of an open database, or a file in it, has been deleted, moved or replaced (rule
/// C6).
///
/// LevelDB does not: it keeps using the files that it has open. Adding and removing names changes the
/// directory's time, so one check of the directory shows that nothing has changed.
final class LevelDBDirectoryMonitor: Sendable {
  private struct State {
    /// The contents of CURRENT, which only LevelDB changes, and only when it opens the database. Nil if it
    /// may have done so in the meantime.
    var manifest: String?
    /// The files that LevelDB keeps open as long as it has the database open.
    var lasting: [(name: String, identity: FileIdentity)] = []
    /// The newest log that has been found. LevelDB removes it only when there is a newer one.
    var log: (number: UInt64, identity: FileIdentity)?
    /// The time of the directory's last change when all of its files were last checked and valid.
    var changeTime: ChangeTime?
    /// When the files are checked again although no name has been added or removed: files can be truncated,
    /// and two changes of a directory can have the same time, since the clocks of file systems are coarse.
    var nextInspection = ContinuousClock.now
  }

  private struct ChangeTime: Hashable {
    let seconds: Int
    let nanoseconds: Int
  }

  private let files: LevelDBFiles
  private let identity: FileIdentity
  private let state = MutexProtected(State())
  /// The directory of the engine, which contains that of the database.
  private let place: DirectoryMonitor

  init(_ files: LevelDBFiles, below path: String) throws {
    self.files = files
    place = try DirectoryMonitor(path: path)
    identity = try FileIdentity(descriptor: files.descriptor, path: files.path)
  }

  /// Accepts the current files as the valid ones, now that LevelDB has opened them.
  func begin() throws {
    let manifest = try LevelDBManifest.currentName(in: files)
    var new = State()
    new.manifest = manifest
    for name in ["LOCK", manifest] {
      guard let status = try files.status(of: name) else { throw missing(name) }
      new.lasting.append((name, status.identity))
    }
    let state = new
    self.state.withLock { $0 = state }
  }

  /// Allows CURRENT to name another manifest until ``begin()``, as LevelDB is about to reopen the database.
  /// If it does and ``begin()`` then fails, the database can be opened once more.
  func expectNewManifest() {
    state.withLock { state in
      let manifest = state.manifest
      state.lasting.removeAll { $0.name == manifest }
      state.manifest = nil
      state.changeTime = nil
    }
  }

  /// Verifies that the directory is where it was, with the files in it.
  ///
  /// Costs a check of the directory; and of each file in it if names have been added or removed, and from
  /// time to time.
  ///
  /// - Parameter handle: The open database, if it is open.
  /// - Throws: `StorageError` with code `io` if a file or the directory is no longer there, `corrupted` if a
  ///   table has another size.
  func check(_ handle: LevelDBHandle?) throws {
    let changeTime = try directoryTime()
    let now = ContinuousClock.now
    if state.withLock({ $0.changeTime == changeTime && now < $0.nextInspection }) { return }
    try inspect(handle)
    let end = ContinuousClock.now
    state.withLock { state in
      state.changeTime = changeTime
      // So inspections take at most a hundredth of the time.
      state.nextInspection = end + (end - now) * 100
    }
  }

  /// Like ``check(_:)``, for a read of a few keys: most of the time, one check of the parent directory suffices.
  /// Changes of single files of the database are detected within a fraction of a millisecond.
  func checkForFewKeys(_ handle: LevelDBHandle) throws {
    guard let observation = try place.observe(isFrequent: true) else { return }
    try check(handle)
    place.confirm(observation)
  }

  /// Closes the directory. No check may follow. May be called twice.
  func close() { place.close() }

  /// Verifies that the directory is where it was, and checks each file in it.
  ///
  /// LevelDB maps tables into memory, and accessing a page that a file no longer has ends the process.
  func checkEverything(_ handle: LevelDBHandle, verifyingEnds: Bool = false) throws {
    _ = try directoryTime()
    try inspect(handle, verifyingEnds: verifyingEnds)
  }

  private func directoryTime() throws -> ChangeTime {
    var status = stat()
    if stat(files.path, &status) != 0 {
      let number = errno
      // Only the permission to examine the path has been revoked. The directory itself is still there.
      guard number == EACCES, fstat(files.descriptor, &status) == 0, status.st_nlink > 0 else {
        throw StorageError.posix(
          number, "The directory \(files.path) has been moved or deleted while the database was open")
      }
    }
    guard FileIdentity(status) == identity else {
      throw StorageError(
        .io,
        "The directory \(files.path) has been replaced while the database was open. Nothing is done there.")
    }
    #if canImport(Darwin)
      let time = status.st_ctimespec
    #else
      let time = status.st_ctim
    #endif
    return ChangeTime(seconds: Int(time.tv_sec), nanoseconds: Int(time.tv_nsec))
  }

  // MARK: Checking each file

  private func inspect(_ handle: LevelDBHandle?, verifyingEnds: Bool = false) throws {
    do {
      try inspectFiles(handle, verifyingEnds)
    } catch {
      // From now on every call checks everything, until a check succeeds.
      state.withLock { $0.changeTime = nil }
      throw error
    }
  }

  private func inspectFiles(_ handle: LevelDBHandle?, _ verifyingEnds: Bool) throws {
    let (manifest, lasting) = state.withLock { ($0.manifest, $0.lasting) }
    let current = try LevelDBManifest.currentName(in: files)
    if let manifest, current != manifest { throw missing("CURRENT") }
    if manifest == nil, try !files.exists(current) { throw missing(current) }
    for (name, identity) in lasting {
      guard let status = try files.status(of: name), status.identity == identity else {
        throw missing(name)
      }
    }
    let list = try LevelDBFileList(in: files)
    // LevelDB would write through a link under the name of its next file, and opening a FIFO would block forever.
    try list.verifyKinds(in: files, allowingDirectories: true) { files.restrict($0, $1) }
    try inspectLogs()
    guard let handle else { return }
    for (number, size) in handle.tables() {
      try inspectTable(number, size, verifyingEnd: verifyingEnds) { handle.tables()[number] != nil }
    }
  }

  private func inspectLogs() throws {
    let known = state.withLock { $0.log }
    // The names of a directory are not read atomically, so the newest log is searched for twice before it counts as
    // missing.
    for isLast in [false, true] {
      guard let name = try LevelDBFileList(in: files).logs.last,
        let number = LevelDBFileList.number(ofLog: name), number >= known?.number ?? 0,
        let status = try files.status(of: name),
        number > known?.number ?? 0 || status.identity == known?.identity
      else {
        if isLast { throw missing(LevelDBFileList.logName(known?.number ?? 0)) }
        continue
      }
      return state.withLock { state in
        if number >= state.log?.number ?? 0 { state.log = (number, status.identity) }
      }
    }
  }

  /// - Parameter isStillUsed: Whether the table belongs to the database now. A table that has been dropped is never
  ///   used again.
  private func inspectTable(
    _ number: UInt64, _ size: UInt64, verifyingEnd: Bool, isStillUsed: () -> Bool
  ) throws {
    let name = LevelDBFileList.tableName(number)
    guard let status = try files.status(of: name) ?? files.status(of: LevelDBFileList.oldTableName(number))
    else {
      // A compaction may have removed it in the meantime.
      if isStillUsed() { throw missing(name) }
      return
    }
    guard UInt64(status.size) == size else {
      throw StorageError(
        .corrupted,
        "\(files.path)/\(name), a table of a LevelDB database, has \(status.size) bytes instead of \(size)."
      )
    }
    guard verifyingEnd else { return }
    do {
      try LevelDBTableFooter.verify(number, size: size, in: files)
    } catch  where !isStillUsed() {}
  }

  private func missing(_ name: String) -> StorageError {
    StorageError(
      .io,
      "\(files.path)/\(name) has been removed or replaced while the database was open, which can be used again once "
        + "it has been reopened.")
  }
}
