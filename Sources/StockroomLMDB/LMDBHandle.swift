import CLMDB
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// An open environment of LMDB.
///
/// One process must never have an environment open twice: closing one of the two would drop the locks of both
/// (http://www.lmdb.tech/doc/, "Caveats"). ``LMDBRegistry`` sees to that.
struct LMDBHandle: @unchecked Sendable {
  // Safe to share: LMDB's environments may be used from any thread. What is not so, moving the map and closing,
  // is done by LMDBEnvironment while nobody else uses the handle.
  let environment: OpaquePointer
  let main: MDB_dbi
  let entries: MDB_dbi
  let fileDescriptor: Int32
  let pageSize: Int

  /// More places than tasks can read at the same time on any machine, in all processes together.
  static let maximumReaders: UInt32 = 1023

  /// Opens what is in the directory, and makes it a Stockroom environment if it is empty.
  ///
  /// - Throws: `StorageError`; with code `unsupported` if the environment is another program's, which is not
  ///   written to then.
  init(path: String) throws {
    var status = stat()
    guard stat(path + "/data.mdb", &status) == 0 else {
      throw StorageError.posix(errno, "Examining \(path)/data.mdb failed")
    }
    let fileSize = Int(status.st_size)
    // Nobody has an environment open whose lock file does not exist. It can be looked at without making one.
    let hasLockFile = access(path + "/lock.mdb", F_OK) == 0
    if fileSize > 0 && !hasLockFile {
      let environment = try Self.open(path, flags: MDB_RDONLY | MDB_NOLOCK, mapSize: fileSize)
      defer { mdb_env_close(environment) }
      try Self.mapErrors(path) { try Self.checkTrees(of: environment, path: path) }
    }
    if !hasLockFile { try Self.makeLockFile(path: path) }
    do {
      let environment = try Self.open(path, flags: 0, mapSize: fileSize)
      do {
        // What nobody else has open is as it was a moment ago.
        try self.init(environment: environment, path: path, isChecked: !hasLockFile)
      } catch {
        mdb_env_close(environment)
        throw error
      }
    } catch {
      if !hasLockFile { unlink(path + "/lock.mdb") }
      throw error
    }
  }

  /// Makes a Stockroom environment of what is an empty file so far.
  static func make(in path: String) throws {
    let handle = try LMDBHandle(path: path)
    defer { mdb_env_close(handle.environment) }
    try mapErrors(path) { try handle.trimFile() }
  }

  private init(environment: OpaquePointer, path: String, isChecked: Bool) throws {
    self.environment = environment
    (main, entries, fileDescriptor, pageSize) = try Self.mapErrors(path) {
      // A process that died while it read would keep pages from being used again for ever.
      try LMDBError.check(mdb_reader_check(environment, nil))
      var descriptor: Int32 = -1
      try LMDBError.check(mdb_env_get_fd(environment, &descriptor))
      // LMDB opens this one of its descriptors so that a child process inherits it.
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      var statistics = MDB_stat()
      try LMDBError.check(mdb_env_stat(environment, &statistics))
      if !isChecked { try Self.checkTrees(of: environment, path: path) }
      let databases = try Self.databases(of: environment, path: path)
      return (databases.main, databases.entries, descriptor, Int(statistics.ms_psize))
    }
  }

  private static func mapErrors<Result>(_ path: String, _ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch {
      throw StorageError.fromTransaction(error, "Opening the LMDB database in \(path) failed")
    }
  }

  private static func open(_ path: String, flags: Int32, mapSize: Int) throws -> OpaquePointer {
    var created: OpaquePointer?
    do {
      try LMDBError.check(mdb_env_create(&created))
      guard let environment = created else { throw LMDBError(code: ENOMEM) }
      // The size of the file, not the one on record: every process keeps the file as long as its map before it
      // writes, whereas the record may be anything after a copy. LMDB rounds up to what is in use.
      try LMDBError.check(mdb_env_set_mapsize(environment, max(mapSize, LMDBEnvironment.initialMapSize)))
      try LMDBError.check(mdb_env_set_maxreaders(environment, maximumReaders))
      try LMDBError.check(mdb_env_set_maxdbs(environment, 1))
      // MDB_NOTLS: tasks are not bound to threads. Readahead stays on: it helps whoever reads everything, and
      // turning it off pays only for a database larger than memory.
      try LMDBError.check(mdb_env_open(environment, path, UInt32(MDB_NOTLS | flags), 0o644))
      return environment
    } catch {
      if let created { mdb_env_close(created) }
      throw StorageError.fromTransaction(error, "Opening the LMDB database in \(path) failed")
    }
  }

  /// Makes the lock file with blocks of its own. LMDB would make it without, and the first store into its map
  /// would end the process with SIGBUS if the disk is full.
  private static func makeLockFile(path: String) throws {
    let path = path + "/lock.mdb"
    let file = systemOpen(path, O_RDWR | O_CREAT | O_CLOEXEC)
    guard file >= 0 else { throw StorageError.posix(errno, "Creating \(path) failed") }
    defer { systemClose(file) }
    let zeros = [UInt8](repeating: 0, count: Int(maximumReaders) * 64 + 4096)
    let written = write(file, zeros, zeros.count)
    guard written == zeros.count else {
      let number = written < 0 ? errno : ENOSPC
      unlink(path)
      throw StorageError.posix(number, "Creating \(path) failed")
    }
  }

  /// Throws if LMDB must not be let near the trees of the environment, or if they are another program's.
  private static func checkTrees(of environment: OpaquePointer, path: String) throws {
    let file = path + "/data.mdb"
    var descriptor: Int32 = -1
    try LMDBError.check(mdb_env_get_fd(environment, &descriptor))
    var statistics = MDB_stat()
    try LMDBError.check(mdb_env_stat(environment, &statistics))
    let pageSize = Int(statistics.ms_psize)
    for _ in 0..<1_000 {
      // The pages of a snapshot stay as they are while it is being read, whatever other processes write.
      let isChecked = try inTransaction(of: environment, flags: MDB_RDONLY) { transaction in
        let number = UInt64(UInt(bitPattern: mdb_txn_id(transaction)))
        guard
          let snapshot = try LMDBFileHeader.snapshot(
            of: number, pageSize: pageSize, fileDescriptor: descriptor, path: file)
        else { return false }
        do {
          var check = LMDBTreeCheck(file: descriptor, snapshot)
          try check.lookAtMainTree()
          _ = try recognise(environment, path: path)
          try check.lookAtOtherTrees()
          return true
        } catch let damage as LMDBTreeCheck.Damage {
          throw StorageError(
            .corrupted,
            "\(file) cannot be used as an LMDB database: page \(damage.page) is damaged, \(damage.what).")
        }
      }
      if isChecked { return }
    }
    throw StorageError(
      .corrupted, "\(file) cannot be used as an LMDB database: no header is that of its transaction.")
  }

  /// Reads what the environment says about itself.
  private static func recognise(_ environment: OpaquePointer, path: String) throws -> LMDBRecord {
    try inTransaction(of: environment, flags: MDB_RDONLY) { transaction in
      var main: MDB_dbi = 0
      try LMDBError.check(mdb_dbi_open(transaction, nil, 0, &main))
      guard let record = try LMDBRecord(in: transaction, main: main) else {
        throw StorageError(.unsupported, "\(path)/data.mdb is the LMDB database of another program.")
      }
      return record
    }
  }

  /// Opens the databases of the environment, which are made if it is empty.
  private static func databases(
    of environment: OpaquePointer, path: String
  ) throws -> (main: MDB_dbi, entries: MDB_dbi) {
    let isNew = try recognise(environment, path: path) == LMDBRecord()
    return try inTransaction(of: environment, flags: isNew ? 0 : MDB_RDONLY) { transaction in
      var main: MDB_dbi = 0
      var entries: MDB_dbi = 0
      try LMDBError.check(mdb_dbi_open(transaction, nil, 0, &main))
      // Somebody may have been faster, and then have written something already.
      if isNew, try LMDBRecord(in: transaction, main: main) == LMDBRecord() {
        try LMDBRecord().store(in: transaction, main: main)
      }
      let flags = isNew ? UInt32(MDB_CREATE) : 0
      try LMDBError.check(mdb_dbi_open(transaction, LMDBRecord.entriesName, flags, &entries))
      return (main, entries)
    }
  }

  private static func inTransaction<Result>(
    of environment: OpaquePointer, flags: Int32, _ body: (OpaquePointer) throws -> Result
  ) throws -> Result {
    var begun: OpaquePointer?
    try LMDBError.check(mdb_txn_begin(environment, nil, UInt32(flags), &begun))
    guard let transaction = begun else { throw LMDBError(code: MDB_BAD_TXN) }
    let result: Result
    do {
      result = try body(transaction)
    } catch {
      mdb_txn_abort(transaction)
      throw error
    }
    try LMDBError.check(mdb_txn_commit(transaction))
    return result
  }
}
