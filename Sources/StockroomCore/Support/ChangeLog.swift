#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file beside a place in which writers log the changes of their last commits, as long as any process
/// subscribes to the changes of the place.
///
/// A ring buffer: 64 bytes of header, then the records, of which each new one replaces the oldest. The writer
/// holds the lock of the place, so that there is only one at a time; readers take no lock. A record is
/// written before the commit, so that a subscriber that sees the commit finds it; a failed commit leaves a
/// record of changes that were not made.
///
/// The last subscriber removes the file. If that subscriber has died, a writer detects that the file is unused, and removes it.
/// Each subscribing process holds a shared lock on the whole file, which prevents its removal. On Linux it also holds a shared
/// lock on the first byte, by which a writer that subscribes itself determines whether it must wake other subscribers.
///
/// The header is a signature of 16 bytes, and in 8 bytes each, little-endian, the number of bytes that have ever been written, a
/// number that each new subscriber changes, and one that a writer changes whose commit a subscriber may have missed.
struct ChangeLog {
  static let capacity = 1 << 20
  private static let signature = Array("Stockroom log 1\n".utf8)
  private static let headerSize = 64
  private static let (subscriptionOffset, missOffset) = (24, 32)

  private let file: FileDescriptor
  private let identity: FileIdentity
  var path: String { file.path }

  private init(_ file: FileDescriptor) throws {
    self.file = file
    identity = try file.status().identity
    let header = try file.readBytes(Self.signature.count)
    guard header == Self.signature else {
      throw StorageError(.unsupported, "\(file.path) is in the way: it is not a log of changes.")
    }
  }

  func close() { file.release() }
}

// MARK: - The file

extension ChangeLog {
  /// The file, if there is one. A writer checks for it before each commit.
  ///
  /// - Parameter known: The result of the last call.
  static func find(atPath path: String, known: ChangeLog?) throws -> ChangeLog? {
    guard let status = try FileStatus(atPath: path), status.isRegularFile else { return nil }
    if let known, known.identity == status.identity { return known }
    return try FileDescriptor.openFile(atPath: path).map(ChangeLog.init)
  }

  /// Creates the file if there is none, and keeps it in place until ``leave()``.
  ///
  /// - Parameters:
  ///   - model: The file whose owner and permissions it gets.
  ///   - isStopped: Whether the caller no longer wants to wait.
  /// - Throws: ``StorageError`` with code `locked` if another process keeps the file locked, `closed` if the caller
  ///   stops, and others.
  static func join(
    atPath path: String, like model: String, unless isStopped: () -> Bool = { false }
  ) throws -> ChangeLog {
    let deadline = ContinuousClock.now + FileLock.defaultTimeout
    while true {
      guard let file = try FileDescriptor.openFile(atPath: path) else {
        try make(atPath: path, like: model)
        continue
      }
      // A second hard link that a process left when it died while creating the file would make it look like a file of another
      // program.
      if try file.status().linkCount > 1 { UnfinishedDirectory.removeAbandoned(for: path, unfinishedNames) }
      try repairIfEmpty(file)
      let log = try ChangeLog(file)
      // The exclusive lock is normally held only briefly, but every process that may read the file can take it (rule O5).
      while flock(file.number, LOCK_SH | LOCK_NB) != 0 {
        guard errno == EWOULDBLOCK || errno == EINTR else {
          throw StorageError.posix(errno, "Locking \(path) failed.")
        }
        if isStopped() { throw StorageError(.closed, "The last subscriber to changes of \(path) has ended.") }
        guard ContinuousClock.now < deadline else {
          throw StorageError(
            .locked, "Another process has kept \(path) locked for \(FileLock.defaultTimeout).")
        }
        usleep(100)
      }
      // It may have been removed before it was locked.
      if try FileIdentity(path: path) == log.identity {
        try log.setSubscribed()
        return log
      }
    }
  }

  /// Rewrites the header if it is missing after a power failure or because the file was truncated. Takes no lock, since other
  /// subscribers hold it: they find that the log now ends before their position. Does not change a file that has a second hard
  /// link, since it may belong to another program (rule O5).
  private static func repairIfEmpty(_ file: FileDescriptor) throws {
    let header = try file.readBytes(headerSize)
    guard
      header.count < headerSize && signature.starts(with: header.prefix(signature.count))
        || header.count == headerSize && header.allSatisfy({ $0 == 0 })
    else { return }
    guard try file.status().linkCount <= 1 else { return }
    try emptyHeader.withUnsafeBytes { try file.write($0) }
  }

  private static var emptyHeader: [UInt8] {
    signature + [UInt8](repeating: 0, count: headerSize - signature.count)
  }

  private static let unfinishedNames = ["log"]

  private static func make(atPath path: String, like model: String) throws {
    guard let status = try FileStatus(atPath: model) else {
      throw StorageError.posix(ENOENT, "Reading the status of \(model) failed.")
    }
    UnfinishedDirectory.removeAbandoned(for: path, unfinishedNames)
    let directory = try UnfinishedDirectory(for: path)
    defer { directory.remove(unfinishedNames) }
    let unfinished = "\(directory.path)/log"
    guard let file = try FileDescriptor.makeFile(atPath: unfinished, .owner) else {
      throw StorageError.posix(EEXIST, "Creating \(unfinished) failed.")
    }
    // Only root may change the owner of a file. Other users may only change its group, to one of their own.
    _ = fchown(file.number, geteuid() == 0 ? status.owner : uid_t.max, status.group)
    try file.setMode(status.mode & (try file.status().group == status.group ? 0o666 : 0o606))
    try emptyHeader.withUnsafeBytes { try file.write($0) }
    if link(unfinished, path) == 0 || errno == EEXIST { return }
    // Not every file system has hard links. In that case, a file that another process has just created may be
    // replaced here, which that process detects.
    guard rename(unfinished, path) == 0 else { throw StorageError.posix(errno, "Creating \(path) failed.") }
  }

  #if canImport(Darwin)
    private func setSubscribed() throws {}

    /// Whether another feed may subscribe as well. The system provides no way to determine that.
    var hasOtherSubscribers: Bool { true }
  #else
    private func setSubscribed() throws {
      var lock = lockOfFirstByte(F_RDLCK)
      guard fcntl(file.number, Self.setLock, &lock) == 0 else {
        throw StorageError.posix(errno, "Locking \(path) failed.")
      }
    }

    /// Whether another feed, of this process or of another, may subscribe as well. Only for a log that this feed has joined.
    var hasOtherSubscribers: Bool {
      var lock = lockOfFirstByte(F_WRLCK)
      return fcntl(file.number, Self.getLock, &lock) != 0 || Int32(lock.l_type) != F_UNLCK
    }

    private func lockOfFirstByte(_ kind: Int32) -> flock {
      var lock = flock()
      lock.l_type = Int16(kind)
      lock.l_whence = Int16(SEEK_SET)
      lock.l_len = 1
      return lock
    }

    /// F_OFD_GETLK and F_OFD_SETLK of fcntl.h: locks that belong to the open file and not to the process.
    private static let (getLock, setLock): (Int32, Int32) = (36, 37)
  #endif

  func isSameFile(as other: ChangeLog) -> Bool { identity == other.identity }

  /// Whether the file is still at its path.
  var isInPlace: Bool { (try? FileIdentity(path: path)) == identity }

  /// Rewrites the header if the file was truncated, since nothing could be logged or read without it.
  ///
  /// - Returns: Whether it was truncated.
  func repairIfTruncated() throws -> Bool {
    guard try file.status().size < Self.headerSize else { return false }
    try Self.emptyHeader.withUnsafeBytes { try file.write($0) }
    return true
  }

  /// Ends the subscription that ``join(atPath:like:unless:)`` began. The last subscriber removes the file.
  func leave() {
    FileLock.release(file.number)
    removeIfUnused()
    close()
  }

  /// Removes the file if no process subscribes any more.
  func removeIfUnused() {
    // A file that cannot be removed only costs writers a little time.
    guard (try? FileLock.tryAcquire(file.number, path: path)) == true else { return }
    if isInPlace { unlink(path) }
    FileLock.release(file.number)
  }
}

// MARK: - Numbers by which subscribers and writers detect each other, without the lock of the place

extension ChangeLog {
  /// Notifies writers of a new subscriber, which does not receive earlier commits from the log.
  func noteSubscription() throws { try store(.random(in: 1 ... .max), at: Self.subscriptionOffset) }

  /// A number that changes with each ``noteSubscription()``.
  func subscription() throws -> UInt64 { try number(at: Self.subscriptionOffset) }

  /// Notifies subscribers of commits that they may have missed.
  func noteMissedCommits() throws {
    try store(.random(in: 1 ... .max), at: Self.missOffset)
    notify()
  }

  /// A number that changes with each ``noteMissedCommits()``.
  func missedCommits() throws -> UInt64 { try number(at: Self.missOffset) }

  private func store(_ number: UInt64, at offset: Int) throws {
    try withUnsafeBytes(of: number.littleEndian) { try file.write($0, at: offset) }
  }

  private func number(at offset: Int) throws -> UInt64 {
    let bytes = try file.readBytes(8, at: offset)
    guard bytes.count == 8 else { throw StorageError(.corrupted, "\(path) has been truncated.") }
    return bytes.withUnsafeBytes { UInt64(littleEndian: $0.loadUnaligned(as: UInt64.self)) }
  }
}

// MARK: - Writing, with the lock of the place

extension ChangeLog {
  /// Returns the range of the record.
  @discardableResult
  func append(_ record: Record) throws -> Range<UInt64> {
    let bytes = record.encoded()
    let end = try end()
    let start = Int(end % UInt64(Self.capacity))
    let room = Self.capacity - start
    try bytes.withUnsafeBytes { bytes in
      try file.write(UnsafeRawBufferPointer(rebasing: bytes.prefix(room)), at: Self.headerSize + start)
      if bytes.count > room {
        try file.write(UnsafeRawBufferPointer(rebasing: bytes[room...]), at: Self.headerSize)
      }
    }
    let newEnd = end + UInt64(bytes.count)
    try setEnd(newEnd)
    return end..<newEnd
  }

  /// Makes every reader detect that records are missing, which it treats as a change of everything. Used in place of a record
  /// that cannot be written. Needs no disk space.
  func leaveGap() throws { try setEnd(end() + 2 * UInt64(Self.capacity)) }

  private func setEnd(_ end: UInt64) throws { try store(end, at: Self.signature.count) }

  /// Confirms that the changes of a record have been committed. Takes no lock of the place; if another record has overwritten
  /// this one in the meantime, that record then counts as corrupted.
  func confirm(_ position: Range<UInt64>) throws {
    let offset = Int((position.lowerBound + 3) % UInt64(Self.capacity))
    try withUnsafeBytes(of: UInt8(Record.confirmation >> 24)) {
      try file.write($0, at: Self.headerSize + offset)
    }
  }

  /// Wakes the subscribers. They watch the file's times, not its contents, so that writing a record does not wake them.
  func notify() {
    // Subscribers that are not woken detect the change of the place itself.
    _ = futimens(file.number, nil)
  }
}

// MARK: - Reading

extension ChangeLog {
  /// The number of bytes that have ever been written: the position of the next record.
  func end() throws -> UInt64 {
    let end = try number(at: Self.signature.count)
    // An invalid number counts as 0: readers treat that as a gap, and the next record corrects it.
    return end <= UInt64(Int64.max) ? end : 0
  }

  /// The records from a position on, each with the position after it. Nil if they have been overwritten.
  func records(from start: UInt64) throws -> [(record: Record, end: UInt64)]? {
    let end = try end()
    guard start <= end, end - start <= UInt64(Self.capacity) else { return nil }
    let bytes = try read(from: start, count: Int(end - start))
    // Records that have been overwritten in the meantime were not read correctly. A record that is being
    // written is not counted yet.
    let now = try self.end()
    guard now >= end, now - start + UInt64(Record.maximumSize) <= UInt64(Self.capacity) else { return nil }
    var records: [(record: Record, end: UInt64)] = []
    var position = 0
    while position < bytes.count {
      guard let (record, count) = Record.decode(bytes[position...]) else { return nil }
      position += count
      records.append((record, start + UInt64(position)))
    }
    return records
  }

  private func read(from start: UInt64, count: Int) throws -> [UInt8] {
    let offset = Int(start % UInt64(Self.capacity))
    let room = min(count, Self.capacity - offset)
    let first = try file.readBytes(room, at: Self.headerSize + offset)
    return count > room ? try first + file.readBytes(count - room, at: Self.headerSize) : first
  }
}
