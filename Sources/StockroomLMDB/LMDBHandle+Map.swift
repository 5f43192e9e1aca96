import CLMDB
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
    let information = information
    return information.me_mapsize - (information.me_last_pgno + 1) * pageSize
  }

  private var information: MDB_envinfo {
    var information = MDB_envinfo()
    // Fails only without an environment or without a place for the answer.
    _ = mdb_env_info(environment, &information)
    return information
  }

  /// Moves the map, which then covers at least what is in use. No transaction of this process may be open.
  ///
  /// - Throws: ``LMDBError``. The environment must be closed then: it has no map.
  func setMapSize(_ size: Int) throws {
    try LMDBError.check(mdb_env_set_mapsize(environment, size))
  }

  /// Throws if there is no room among the addresses of the process for a map of this size. LMDB unmaps the old
  /// one before it finds out.
  func checkAddresses(forMapOf size: Int) throws {
    guard let map = mmap(nil, size, PROT_NONE, MAP_SHARED, fileDescriptor, 0), map != MAP_FAILED else {
      throw LMDBError(code: errno)
    }
    munmap(map, size)
  }

  func fileSize() throws -> Int {
    var status = stat()
    guard fstat(fileDescriptor, &status) == 0 else { throw LMDBError(code: errno) }
    return Int(status.st_size)
  }

  /// Makes the file as long as the map, without taking room on the disk.
  ///
  /// LMDB does not write every page that it counts as used, so that a sound file could end before the last of
  /// them. A file kept this long never does, and one that does has been cut off.
  func extendFile(to size: Int) throws {
    if try fileSize() >= size { return }
    guard ftruncate(fileDescriptor, off_t(size)) == 0 else {
      // A file system that cannot have so long a file has no room left for this one.
      throw LMDBError(code: errno == EFBIG ? ENOSPC : errno)
    }
  }

  /// Cuts off what ``extendFile(to:)`` has added and no page uses, so that nobody wonders at the size of the file,
  /// and so that one which has been cut off by somebody else is recognised whatever was cut off.
  func trimFile() throws {
    // Nobody in any process writes during a write transaction.
    let transaction = try beginWriting()
    defer { mdb_txn_abort(transaction) }
    guard ftruncate(fileDescriptor, off_t((information.me_last_pgno + 1) * pageSize)) == 0 else {
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
  /// one that is not acknowledged yet; whoever reads next would see what was before it (rule W4). So it begins again then.
  func begin(_ reader: inout LMDBReader?) throws -> LMDBReader {
    var begun = try beginOnce(&reader)
    while isOvertaken(begun.transaction) {
      mdb_txn_reset(begun.transaction)
      begun = try beginOnce(&reader)
    }
    return begun
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

  /// Whether the meta page of the transaction may have been written since it was to begin: by the next commit but one.
  private func isOvertaken(_ transaction: OpaquePointer) -> Bool {
    information.me_last_txnid > mdb_txn_id(transaction) + 1
  }

  /// What beginning a read transaction returns at the moment.
  func probe() -> Int32 {
    var begun: OpaquePointer?
    let result = mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &begun)
    if let begun { mdb_txn_abort(begun) }
    return result
  }

  /// Begins a write transaction, after those of all other processes.
  func beginWriting() throws -> OpaquePointer {
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
