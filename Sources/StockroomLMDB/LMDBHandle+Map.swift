import StockroomCLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

extension LMDBHandle {
  /// The number of bytes of the file that are mapped: the size to which the database can grow before the map
  /// must be moved.
  var mapSize: Int { information.me_mapsize }

  /// The number of bytes of the map after the last page in use. There may be free pages before them.
  var unusedMap: Int {
    information.me_mapsize - usedSize
  }

  /// The number of bytes of the file up to the last page in use.
  var usedSize: Int { Int(pageCount) * pageSize }

  /// The number of pages of the file, up to the last one in use. Limited to the maximum for any file, since another
  /// program may have overwritten the number.
  var pageCount: UInt64 { Self.pageCount(information) }

  private static func pageCount(_ information: MDB_envinfo) -> UInt64 {
    UInt64(min(max(information.me_last_pgno, 1), 1 << 40)) + 1
  }

  var information: MDB_envinfo { Self.information(environment) }

  /// Moves both maps, which then cover at least the pages in use. No other thread may be using LMDB's own map.
  ///
  /// - Throws: ``LMDBError``. The environment must then be closed: it has no map.
  func setMapSize(_ size: Int) throws(LMDBError) {
    try LMDBError.check(mdb_env_set_mapsize(environment, size))
    map = try LMDBMap(fileDescriptor: fileDescriptor, size: mapSize)
  }

  /// Throws if the address space of the process has no room for two maps of this size. LMDB would unmap the
  /// old one before it detects that.
  func checkAddresses(forMapsOf size: Int) throws {
    guard let maps = mmap(nil, 2 * size, PROT_NONE, MAP_SHARED, fileDescriptor, 0), maps != MAP_FAILED else {
      throw LMDBError(code: errno)
    }
    munmap(maps, 2 * size)
  }

  func fileSize() throws -> Int {
    guard let found = UntimedFileStatus(descriptor: fileDescriptor) else { throw LMDBError(code: errno) }
    return found.size
  }

  /// Makes the file as long as the map, without using disk space. Call it only in a write transaction:
  /// otherwise, data that another process adds between checking and changing the size would be cut off.
  ///
  /// LMDB does not write every page that it counts as used, so a valid file could end before its last page. A file that
  /// is kept as long as the map does not, so if it ends before its last page, it has been truncated.
  func extendFile(to size: Int) throws {
    if try fileSize() >= size { return }
    guard ftruncate(fileDescriptor, off_t(size)) == 0 else {
      // The file system does not support files of this length, so this file cannot grow: it counts as a full disk.
      throw LMDBError(code: errno == EFBIG ? ENOSPC : errno)
    }
  }

  /// Makes the file as long as a future map, in a separate transaction.
  ///
  /// - Throws: ``LMDBError``, with `MDB_MAP_RESIZED` if the database has become larger than the current map.
  func growFile(to size: Int) throws {
    let transaction = try beginWriting()
    defer { mdb_txn_abort(transaction) }
    try extendFile(to: size)
  }

  /// The number of bytes of disk space that are reserved behind the map, for removals when the disk is full: a removal
  /// needs pages too.
  private static let reserveSize = 1 << 16

  /// Reserves disk space behind the map, if there is plenty. Call it only in a write transaction.
  func keepReserve() {
    let (start, end) = (mapSize, mapSize + Self.reserveSize)
    guard let size = try? fileSize(), size < end, !hasLessRoom(than: 2 * Self.reserveSize) else { return }
    let zeros = [UInt8](repeating: 0, count: end - size)
    if pwrite(fileDescriptor, zeros, zeros.count, off_t(size)) != zeros.count {
      _ = ftruncate(fileDescriptor, off_t(start))
    }
  }

  /// Releases the reserve. Call it only in a write transaction, in which no other process makes the file
  /// longer.
  func releaseReserve() throws {
    guard try fileSize() == mapSize + Self.reserveSize else { return }
    guard ftruncate(fileDescriptor, off_t(mapSize)) == 0 else { throw LMDBError(code: errno) }
  }

  /// The start of the reserve that another process keeps behind its map; nil if the file does not end with
  /// one, as far as can be determined.
  func startOfReserve() throws -> Int? {
    let size = try fileSize()
    let start = size - Self.reserveSize
    guard start >= max(usedSize, LMDBEnvironment.initialMapSize), size.isMultiple(of: Self.reserveSize),
      firstData(from: start) == start
    else { return nil }
    return start
  }

  /// The part of the file that the map must cover: everything except the reserve of another process. A process that
  /// mapped the reserve too would add its own reserve behind it, and so would each process that opens the database
  /// later.
  func sizeToMap() throws -> Int { try startOfReserve() ?? fileSize() }

  /// The first offset from `offset` on that may contain data; nil if there is none. If the file system does not report
  /// holes, everything counts as data. So it does on Apple's systems, where APFS may report data as a hole.
  private func firstData(from offset: Int) -> Int? {
    #if canImport(Darwin)
      return offset
    #else
      // `SEEK_DATA` of `linux/fs.h`, which the C library defines for GNU programs only.
      let start = lseek(fileDescriptor, off_t(offset), 3)
      return start < 0 ? (errno == ENXIO ? nil : offset) : Int(start)
    #endif
  }

  /// Whether the file is longer than the pages in use, and the rest consists of zeros, as after ``extendFile(to:)`` and
  /// ``keepReserve()``. Skips holes. Returns false if there are more than 128 KiB of zeros that are not in holes.
  func isEmptyBehindLastPage() throws -> Bool {
    let size = try fileSize()
    guard size > usedSize else { return false }
    var (offset, bytesLeft) = (usedSize, 2 * Self.reserveSize)
    var buffer = [UInt8](repeating: 0, count: Self.reserveSize)
    while offset < size {
      guard let start = firstData(from: offset) else { return true }
      let count = pread(fileDescriptor, &buffer, buffer.count, off_t(start))
      guard count >= 0 else { throw LMDBError(code: errno) }
      if count == 0 { return true }
      bytesLeft -= count
      guard bytesLeft >= 0, buffer[..<count].allSatisfy({ $0 == 0 }) else { return false }
      offset = start + count
    }
    return true
  }

  /// Truncates the file after the last page in use: the parts that ``extendFile(to:)`` and ``keepReserve()`` have
  /// added. So the file shows its real size, and truncation by another program is detected.
  func trimFile() throws {
    // During a write transaction, no other thread or process writes.
    let transaction = try beginWriting()
    defer { mdb_txn_abort(transaction) }
    guard ftruncate(fileDescriptor, off_t(usedSize)) == 0 else {
      throw LMDBError(code: errno)
    }
  }

  /// Whether less disk space is left than this, as far as the file system reports it.
  func hasLessRoom(than size: Int) -> Bool {
    var status = statvfs()
    guard fstatvfs(fileDescriptor, &status) == 0 else { return false }
    let (room, isTooLarge) = UInt64(status.f_bavail).multipliedReportingOverflow(by: UInt64(status.f_frsize))
    return !isTooLarge && room < UInt64(size)
  }
}

extension LMDBHandle {
  /// Begins a read transaction in place of `reader`, which is renewed if there is one.
  ///
  /// LMDB first takes the number of the latest commit, and then the roots of its trees from one of two meta pages, each
  /// of which every second commit overwrites. A thread that is delayed in between finds the roots of a later commit,
  /// possibly of one that is not acknowledged yet; the next reader would then see the state before it (rule W4). In
  /// that case, the transaction is begun again.
  ///
  /// - Returns: Nil if no attempt of a hundred has succeeded: the thread is delayed each time, or another process
  ///   writes the file without the lock file, or has overwritten it with an older copy.
  func begin(_ reader: inout LMDBReader?) throws -> LMDBSnapshot? {
    for _ in 0..<100 {
      let transaction = try beginOnce(&reader).transaction
      let (information, number) = (information, mdb_txn_id(transaction))
      // A difference of one is a commit that has not been acknowledged yet. The addition wraps: the number is from the
      // lock file, to which another process may have written any number.
      if information.me_last_txnid == number || information.me_last_txnid == number &+ 1 {
        do {
          let tree = try tree(in: transaction, pageCount: Self.pageCount(information))
          return LMDBSnapshot(transaction: transaction, number: number, tree: tree)
        } catch {
          mdb_txn_reset(transaction)
          throw error
        }
      }
      mdb_txn_reset(transaction)
    }
    return nil
  }

  /// The state after the latest commit, without a transaction. The reader verifies afterwards that no other
  /// commit was made in the meantime.
  func latestSnapshot(_ file: LMDBFile) throws -> LMDBSnapshot {
    let latest = try LMDBFileHeader.newest(of: file.descriptor, path: file.path)
    func tree(_ record: LMDBTreeRecord) throws(LMDBError) -> LMDBTree {
      try LMDBTree(record, in: map, pageSize: pageSize, pageCount: latest.lastPage + 1)
    }
    let main = try tree(latest.main)
    let name = LMDBMetadata.entriesName
    let key = UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
    let record = try main.value(of: key)
    guard let record, record.count == LMDBTreeRecord.encodedSize else { throw LMDBError.corruptedPage }
    return LMDBSnapshot(
      transaction: nil, number: Int(clamping: latest.transaction), tree: try tree(LMDBTreeRecord(record)))
  }

  /// The tree of entries that the transaction sees.
  func tree(in transaction: OpaquePointer, pageCount: UInt64) throws(LMDBError) -> LMDBTree {
    let name = LMDBMetadata.entriesName
    var key = MDB_val(
      mv_size: name.utf8CodeUnitCount, mv_data: UnsafeMutableRawPointer(mutating: name.utf8Start))
    var value = MDB_val()
    try LMDBError.check(mdb_get(transaction, main, &key, &value))
    guard value.mv_size == LMDBTreeRecord.encodedSize else { throw .corruptedPage }
    let record = LMDBTreeRecord(UnsafeRawBufferPointer(start: value.mv_data, count: value.mv_size))
    return try LMDBTree(record, in: map, pageSize: pageSize, pageCount: pageCount)
  }

  /// Throws `StorageError` with code `corrupted` if the file is shorter than the part in use: reading it would end the
  /// process with SIGBUS.
  ///
  /// - Parameter size: The size of the file that the caller has found. The file may have grown since then.
  func checkLength(_ size: Int64) throws {
    if size >= 2 * pageSize {
      let used = usedSize
      if size >= used { return }
      if try fileSize() >= used { return }
    }
    throw StorageError(.corrupted, "data.mdb has been truncated to \(size) bytes since it was opened.")
  }

  private func beginOnce(_ reader: inout LMDBReader?) throws -> LMDBReader {
    if let reader {
      try LMDBError.check(mdb_txn_renew(reader.transaction))
      return reader
    }
    var begun: OpaquePointer?
    var result = mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &begun)
    if result == MDB_READERS_FULL {
      // Clears the slots of processes that have ended.
      mdb_reader_check(environment, nil)
      result = mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &begun)
    }
    try LMDBError.check(result)
    guard let transaction = begun else { throw LMDBError(code: MDB_BAD_TXN) }
    let new = LMDBReader(transaction: transaction)
    reader = new
    return new
  }

  /// The current result of beginning a read transaction.
  func probe() -> Int32 {
    var begun: OpaquePointer?
    let result = mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &begun)
    if let begun { mdb_txn_abort(begun) }
    return result
  }

  /// Begins a write transaction, after those of all other processes.
  func beginWriting() throws(LMDBError) -> OpaquePointer {
    var begun: OpaquePointer?
    try LMDBError.check(mdb_txn_begin(environment, nil, 0, &begun))
    guard let transaction = begun else { throw LMDBError(code: MDB_BAD_TXN) }
    return transaction
  }

  /// Clears the slots of processes that died while they read.
  ///
  /// - Returns: Whether there were any, in which case more pages may be free now.
  func clearDeadReaders() throws -> Bool {
    var dead: Int32 = 0
    try LMDBError.check(mdb_reader_check(environment, &dead))
    return dead > 0
  }

  /// Sets what a commit waits for. At `.process`, LMDB syncs all pages except the meta page. Without any sync
  /// (`MDB_NOSYNC`), a crash of the machine could destroy the whole database.
  func setDurability(_ durability: Durability) throws {
    let flag = UInt32(MDB_NOMETASYNC)
    var flags: UInt32 = 0
    try LMDBError.check(mdb_env_get_flags(environment, &flags))
    let mustBeOn = durability == .process
    // Readers read the flags without a lock, so the flags are set only when they change.
    if (flags & flag != 0) != mustBeOn {
      try LMDBError.check(mdb_env_set_flags(environment, flag, mustBeOn ? 1 : 0))
    }
  }
}
