#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A file beside a place in which writers say what each of the last commits has changed, as long as any process subscribes to
/// the changes of the place.
///
/// A ring: 64 bytes of header, then the records, of which each new one takes the place of the oldest. The writer has the lock of the
/// place, so that there is one at a time; readers take no lock. A record is written before the commit, so that a subscriber
/// that sees the commit finds it; a commit that fails leaves a record of changes that did not happen.
///
/// The file is removed by the last subscriber. If that has died, a writer finds out. Each process that subscribes has a shared lock
/// of the whole file, which keeps it there, and on Linux one of its first byte, by which a writer that subscribes too finds out
/// whether it has to wake others up.
///
/// The header is a signature of 16 bytes, and in 8 bytes each, little-endian, the number of bytes that have ever been written, a number
/// that each new subscriber changes, and one that a writer changes whose commit a subscriber may have missed.
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
  /// The file, if there is one: what a writer asks before each commit.
  ///
  /// - Parameter known: What was there the last time.
  static func find(atPath path: String, known: ChangeLog?) throws -> ChangeLog? {
    guard let status = try FileStatus(atPath: path), status.isRegularFile else { return nil }
    if let known, known.identity == status.identity { return known }
    return try FileDescriptor.openFile(atPath: path).map(ChangeLog.init)
  }

  /// Makes the file if there is none, and keeps it there until ``leave()``.
  ///
  /// - Throws: ``StorageError`` with code `locked` if another process keeps the file locked, and others.
  static func join(atPath path: String, _ permissions: FilePermissions) throws -> ChangeLog {
    let deadline = ContinuousClock.now + FileLock.defaultTimeout
    while true {
      guard let file = try FileDescriptor.openFile(atPath: path) else {
        try make(atPath: path, permissions)
        continue
      }
      try repairIfEmpty(file)
      let log = try ChangeLog(file)
      // Only for a moment does anybody have the exclusive lock, but every process that may read the file can take it (rule O5).
      while flock(file.number, LOCK_SH | LOCK_NB) != 0 {
        guard errno == EWOULDBLOCK || errno == EINTR else {
          throw StorageError.posix(errno, "Locking \(path) failed.")
        }
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

  /// Writes the header again, which is missing after a power cut or once somebody has cut the file off. Without a lock, which other
  /// subscribers have: they find that what they have read up to is not there any more.
  private static func repairIfEmpty(_ file: FileDescriptor) throws {
    let header = try file.readBytes(headerSize)
    guard
      header.count < headerSize && signature.starts(with: header.prefix(signature.count))
        || header.count == headerSize && header.allSatisfy({ $0 == 0 })
    else { return }
    try emptyHeader.withUnsafeBytes { try file.write($0) }
  }

  private static var emptyHeader: [UInt8] {
    signature + [UInt8](repeating: 0, count: headerSize - signature.count)
  }

  private static func make(atPath path: String, _ permissions: FilePermissions) throws {
    let unfinished = "\(path)-new-\(getpid())-\(UInt64.random(in: .min ... .max))"
    guard let file = try FileDescriptor.makeFile(atPath: unfinished, permissions) else {
      throw StorageError.posix(EEXIST, "Making \(unfinished) failed.")
    }
    defer { unlink(unfinished) }
    try file.setMode(permissions.fileMode)
    try emptyHeader.withUnsafeBytes { try file.write($0) }
    if link(unfinished, path) == 0 || errno == EEXIST { return }
    // Not every file system has hard links. One that another process has just made may be lost here, which that one notices.
    guard rename(unfinished, path) == 0 else { throw StorageError.posix(errno, "Making \(path) failed.") }
  }

  #if canImport(Darwin)
    private func setSubscribed() throws {}

    /// Whether another process subscribes as well. The system does not tell.
    var hasOtherSubscribers: Bool { true }
  #else
    private func setSubscribed() throws {
      var lock = lockOfFirstByte(F_RDLCK)
      guard fcntl(file.number, Self.setLock, &lock) == 0 else {
        throw StorageError.posix(errno, "Locking \(path) failed.")
      }
    }

    /// Whether another process subscribes as well, for all that is known. For a log that this process has joined.
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

  /// Whether the file is still where others find it.
  var isInPlace: Bool { (try? FileIdentity(path: path)) == identity }

  /// Makes the file usable again if somebody has cut it off, so that nothing could be written to it or read from it any more.
  ///
  /// - Returns: Whether it was so.
  func repairIfTruncated() throws -> Bool {
    guard try file.status().size < Self.headerSize else { return false }
    try Self.emptyHeader.withUnsafeBytes { try file.write($0) }
    return true
  }

  /// Ends what ``join(atPath:_:)`` has begun. The last one removes the file.
  func leave() {
    FileLock.release(file.number)
    removeIfUnused()
    close()
  }

  /// Removes the file if no process subscribes any more.
  func removeIfUnused() {
    // What cannot be removed costs writers a little time, no more.
    guard (try? FileLock.tryAcquire(file.number, path: path)) == true else { return }
    if isInPlace { unlink(path) }
    FileLock.release(file.number)
  }
}

// MARK: - Subscribers and writers that do not know of each other, without the lock of the place

extension ChangeLog {
  /// Lets writers know that somebody subscribes, who does not get what has been committed before.
  func noteSubscription() throws { try store(.random(in: 1 ... .max), at: Self.subscriptionOffset) }

  /// Another number after each ``noteSubscription()``.
  func subscription() throws -> UInt64 { try number(at: Self.subscriptionOffset) }

  /// Lets subscribers know of commits that they may have missed.
  func noteMissedCommits() throws {
    try store(.random(in: 1 ... .max), at: Self.missOffset)
    notify()
  }

  /// Another number after each ``noteMissedCommits()``.
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
  /// Returns where the record begins and ends.
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

  /// Lets every reader find that records are missing, which it takes for a change of everything: in place of a record that cannot be
  /// written. Needs no room on the disk.
  func leaveGap() throws { try setEnd(end() + 2 * UInt64(Self.capacity)) }

  private func setEnd(_ end: UInt64) throws { try store(end, at: Self.signature.count) }

  /// Says that what a record announces has been committed. Without the lock of the place; a record that has taken its place meanwhile
  /// counts as corrupted then.
  func confirm(_ position: Range<UInt64>) throws {
    let offset = Int((position.lowerBound + 3) % UInt64(Self.capacity))
    try withUnsafeBytes(of: UInt8(Record.confirmation >> 24)) {
      try file.write($0, at: Self.headerSize + offset)
    }
  }

  /// Wakes the subscribers up. They watch the file's times, not its contents, so that writing a record wakes nobody.
  func notify() {
    // Subscribers that are not woken up notice the change of the place itself.
    _ = futimens(file.number, nil)
  }
}

// MARK: - Reading

extension ChangeLog {
  /// How many bytes have ever been written: where the next record will begin.
  func end() throws -> UInt64 {
    let end = try number(at: Self.signature.count)
    // No number that can be: readers take it for a gap, and the next record puts it right.
    return end <= UInt64(Int64.max) ? end : 0
  }

  /// The records from a position on, each with the position behind it. Nil if they are not there any more.
  func records(from start: UInt64) throws -> [(record: Record, end: UInt64)]? {
    let end = try end()
    guard start <= end, end - start <= UInt64(Self.capacity) else { return nil }
    let bytes = try read(from: start, count: Int(end - start))
    // What has been written over meanwhile was not read as it was. A record that is being written is not counted yet.
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
