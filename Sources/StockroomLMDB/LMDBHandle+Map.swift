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
  /// How many bytes of the file are mapped: what the database can grow to before the map has to be moved.
  var mapSize: Int { information.me_mapsize }

  /// How many bytes of the map no page has been put to yet. There may be free ones before them.
  var unusedMap: Int {
    information.me_mapsize - usedSize
  }

  /// How many bytes of the file are up to the last page that is in use.
  var usedSize: Int { Int(pageCount) * pageSize }

  /// How many pages the file has, up to the last one that is in use. Not more than any file, whatever has been written over it.
  var pageCount: UInt64 { Self.pageCount(information) }

  private static func pageCount(_ information: MDB_envinfo) -> UInt64 {
    UInt64(min(max(information.me_last_pgno, 1), 1 << 40)) + 1
  }

  var information: MDB_envinfo { Self.information(environment) }

  /// Moves both maps, which then cover at least what is in use. LMDB's own must not be in use.
  ///
  /// - Throws: ``LMDBError``. The environment must be closed then: it has no map.
  func setMapSize(_ size: Int) throws(LMDBError) {
    try LMDBError.check(mdb_env_set_mapsize(environment, size))
    map = try LMDBMap(fileDescriptor: fileDescriptor, size: mapSize)
  }

  /// Throws if there is no room among the addresses of the process for two maps of this size. LMDB unmaps the old
  /// one before it finds out.
  func checkAddresses(forMapsOf size: Int) throws {
    guard let maps = mmap(nil, 2 * size, PROT_NONE, MAP_SHARED, fileDescriptor, 0), maps != MAP_FAILED else {
      throw LMDBError(code: errno)
    }
    munmap(maps, 2 * size)
  }

  func fileSize() throws -> Int {
    var status = stat()
    guard fstat(fileDescriptor, &status) == 0 else { throw LMDBError(code: errno) }
    return Int(status.st_size)
  }

  /// Makes the file as long as the map, without taking room on the disk. Only in a write transaction: what another process
  /// adds between the look at the size and the change of it would be cut off.
  ///
  /// LMDB does not write every page that it counts as used, so that a sound file could end before the last of
  /// them. A file kept this long never does, and one that does has been truncated.
  func extendFile(to size: Int) throws {
    if try fileSize() >= size { return }
    guard ftruncate(fileDescriptor, off_t(size)) == 0 else {
      // A file system that cannot have so long a file has no room left for this one.
      throw LMDBError(code: errno == EFBIG ? ENOSPC : errno)
    }
  }

  /// Makes the file as long as a map that is to be made, in a transaction of its own.
  ///
  /// - Throws: ``LMDBError``, with `MDB_MAP_RESIZED` if the database has become larger than the map that there is.
  func growFile(to size: Int) throws {
    let transaction = try beginWriting()
    defer { mdb_txn_abort(transaction) }
    try extendFile(to: size)
  }

  /// How many bytes of the disk are kept behind the map for the removal of entries on a full disk, which needs pages too.
  private static let reserveSize = 1 << 16

  /// Takes room on the disk behind the map, if there is plenty. Only in a write transaction.
  func keepReserve() {
    let (start, end) = (mapSize, mapSize + Self.reserveSize)
    guard let size = try? fileSize(), size < end, !hasLessRoom(than: 2 * Self.reserveSize) else { return }
    let zeros = [UInt8](repeating: 0, count: end - size)
    if pwrite(fileDescriptor, zeros, zeros.count, off_t(size)) != zeros.count {
      _ = ftruncate(fileDescriptor, off_t(start))
    }
  }

  /// Gives the room back. Only in a write transaction, in which no other process makes the file longer.
  func releaseReserve() throws {
    guard try fileSize() == mapSize + Self.reserveSize else { return }
    guard ftruncate(fileDescriptor, off_t(mapSize)) == 0 else { throw LMDBError(code: errno) }
  }

  /// Where the reserve begins that another process keeps behind its map; nil if the file does not end with one, as far as can be told.
  func startOfReserve() throws -> Int? {
    let size = try fileSize()
    let start = size - Self.reserveSize
    guard start >= max(usedSize, LMDBEnvironment.initialMapSize), size.isMultiple(of: Self.reserveSize),
      firstData(from: start) == start
    else { return nil }
    return start
  }

  /// How much of the file the map has to cover: all but the reserve of another process. A process that mapped that too would keep as much
  /// behind it again, and so would each that opens the database after it.
  func sizeToMap() throws -> Int { try startOfReserve() ?? fileSize() }

  /// The first offset from `offset` on at which something may have been written; nil if there is none. Where the file system does not
  /// report holes, everything counts as written. So it does on Apple's systems, where APFS may report a hole that has been written.
  private func firstData(from offset: Int) -> Int? {
    #if canImport(Darwin)
      return offset
    #else
      // `SEEK_DATA` of `linux/fs.h`, which the C library shows to GNU programs only.
      let start = lseek(fileDescriptor, off_t(offset), 3)
      return start < 0 ? (errno == ENXIO ? nil : offset) : Int(start)
    #endif
  }

  /// Whether the file is longer than what is in use, by nothing but zeros, as ``extendFile(to:)`` and ``keepReserve()`` leave it. Costs
  /// no more than reading as many bytes as these write.
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

  /// Cuts off what ``extendFile(to:)`` has added and no page uses, so that the file shows its real size,
  /// and so that one which has been truncated by another program is recognized whatever was truncated.
  func trimFile() throws {
    // No other thread of any process writes during a write transaction.
    let transaction = try beginWriting()
    defer { mdb_txn_abort(transaction) }
    guard ftruncate(fileDescriptor, off_t(usedSize)) == 0 else {
      throw LMDBError(code: errno)
    }
  }

  /// Whether less room is left on the disk than this, as far as the file system tells.
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
  /// LMDB first takes the number of the latest commit and then the roots of its trees, from the one of two meta pages to
  /// which every second commit writes. A thread that is held up in between finds the roots of a later commit there, maybe of
  /// one that is not acknowledged yet; the next reader would see what was before it (rule W4). So it begins again then.
  ///
  /// - Returns: Nil if that has not helped. Then the thread is held up for long, or another process writes the file without the lock
  ///   file, or has written an older copy over it.
  func begin(_ reader: inout LMDBReader?) throws -> LMDBSnapshot? {
    for _ in 0..<100 {
      let transaction = try beginOnce(&reader).transaction
      let (information, number) = (information, mdb_txn_id(transaction))
      // One more is the commit that has not been acknowledged yet. Wrapping: the number is from the lock file, in which another
      // process may have written any.
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

  /// What the latest commit has left, without a transaction. The reader finds out afterwards that it was the latest one
  /// all the time.
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

  /// The tree of entries as the transaction sees it.
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

  /// Throws if the file is not as long as what is in use of it. LMDB would end the process with SIGBUS.
  ///
  /// - Parameter size: The size of the file a moment ago. It may have grown since.
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
      // Places may belong to processes that are gone.
      mdb_reader_check(environment, nil)
      result = mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &begun)
    }
    try LMDBError.check(result)
    guard let transaction = begun else { throw LMDBError(code: MDB_BAD_TXN) }
    let new = LMDBReader(transaction: transaction)
    reader = new
    return new
  }

  /// What beginning a read transaction returns at the moment.
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

  /// Clears the places of processes that died while they read.
  ///
  /// - Returns: Whether there were any, in which case pages may be free that were not.
  func clearDeadReaders() throws -> Bool {
    var dead: Int32 = 0
    try LMDBError.check(mdb_reader_check(environment, &dead))
    return dead > 0
  }

  /// Chooses what a commit waits for. `.process` leaves only the meta page to the system: without the sync of
  /// the other pages before it (`MDB_NOSYNC`) the death of the machine could destroy the whole database.
  func setDurability(_ durability: Durability) throws {
    let flag = UInt32(MDB_NOMETASYNC)
    var flags: UInt32 = 0
    try LMDBError.check(mdb_env_get_flags(environment, &flags))
    let mustBeOn = durability == .process
    // Readers look at the flags without a lock, so they are not written without need.
    if (flags & flag != 0) != mustBeOn {
      try LMDBError.check(mdb_env_set_flags(environment, flag, mustBeOn ? 1 : 0))
    }
  }
}
