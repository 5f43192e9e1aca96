import StockroomCLMDB
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
/// A process must never have an environment open twice: closing one of the two would release the locks of
/// both (http://www.lmdb.tech/doc/, "Caveats"). ``LMDBRegistry`` ensures that.
final class LMDBHandle: @unchecked Sendable {
  // Safe to share: LMDB's environments may be used from any thread. The exceptions, moving the map and
  // closing, are done by LMDBEnvironment on the thread that writes, while `environment` and `map` are not
  // otherwise in use.
  let environment: OpaquePointer
  let main: MDB_dbi
  let entries: MDB_dbi
  let fileDescriptor: Int32
  let pageSize: Int
  /// The part of the file that reads access: as much of it as LMDB maps.
  var map: LMDBMap

  /// The number of slots for readers: more than all processes together use at the same time on any machine.
  static let maximumReaders: UInt32 = 1023

  /// Opens the environment, and initializes it for Stockroom if it is empty. Call it only with the lock of
  /// the file.
  ///
  /// - Throws: `StorageError`.
  convenience init(_ file: LMDBFile, _ files: LMDBFiles) throws {
    let environment = try Self.openWithoutDeadReaders(file.directory)
    do {
      try self.init(environment: environment, directory: file.directory)
    } catch {
      mdb_env_close(environment)
      throw error
    }
    do {
      try Self.mapErrors(file.directory) {
        guard let size = try startOfReserve(), size < mapSize else { return }
        try setMapSize(size)
      }
      // LMDB has opened the files by their paths, so these must still lead to the files that were opened before.
      guard try FileIdentity(descriptor: fileDescriptor, path: file.path) == file.identity else {
        throw StorageError(.io, "\(file.path) was replaced while it was being opened.")
      }
      _ = try files.check()
    } catch {
      close()
      throw error
    }
  }

  /// Creates a Stockroom environment from an empty file.
  ///
  /// - Parameters:
  ///   - flags: Flags for LMDB, such as `MDB_NOSYNC`.
  ///   - fill: Writes the contents.
  static func make(
    in directory: String, flags: Int32 = 0, fill: (LMDBHandle) throws -> Void = { _ in }
  ) throws {
    // Without LMDB's lock: no other process knows the path of the directory.
    let environment = try open(directory, flags: MDB_NOLOCK | flags)
    defer { mdb_env_close(environment) }
    let handle = try LMDBHandle(environment: environment, directory: directory)
    try mapErrors(directory) {
      try fill(handle)
      try handle.trimFile()
    }
  }

  private init(environment: OpaquePointer, directory: String) throws {
    self.environment = environment
    (main, entries, fileDescriptor, pageSize, map) = try Self.mapErrors(directory) {
      var descriptor: Int32 = -1
      try LMDBError.check(mdb_env_get_fd(environment, &descriptor))
      // LMDB opens this descriptor without `O_CLOEXEC`.
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      try Self.checkLockFile(of: environment, directory: directory)
      var statistics = MDB_stat()
      try LMDBError.check(mdb_env_stat(environment, &statistics))
      let databases = try Self.databases(of: environment, directory: directory)
      let map = try LMDBMap(fileDescriptor: descriptor, size: Self.information(environment).me_mapsize)
      return (databases.main, databases.entries, descriptor, Int(statistics.ms_psize), map)
    }
  }

  /// Closes the environment. No transaction may be in progress or idle.
  func close() { mdb_env_close(environment) }

  private static func mapErrors<Result>(_ directory: String, _ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch {
      throw StorageError.fromTransaction(error, "Opening the LMDB database in \(directory) failed")
    }
  }

  private static func open(_ directory: String, flags: Int32 = 0) throws -> OpaquePointer {
    var status = stat()
    guard stat(directory + "/data.mdb", &status) == 0 else {
      throw StorageError.posix(errno, "Examining \(directory)/data.mdb failed")
    }
    var created: OpaquePointer?
    do {
      try LMDBError.check(mdb_env_create(&created))
      guard let environment = created else { throw LMDBError(code: ENOMEM) }
      // Uses the size of the file, not the size recorded in it: every process makes the file as long as its map before
      // it writes, while the recorded size may be anything after a copy. LMDB enlarges the map to the pages in use.
      try LMDBError.check(mdb_env_set_mapsize(environment, mappedSize(ofFile: Int(status.st_size))))
      try LMDBError.check(mdb_env_set_maxreaders(environment, maximumReaders))
      try LMDBError.check(mdb_env_set_maxdbs(environment, 1))
      // MDB_NOTLS: tasks are not bound to threads. Readahead stays on: it helps reads of everything, and
      // turning it off pays only for a database larger than memory.
      try LMDBError.check(mdb_env_open(environment, directory, UInt32(MDB_NOTLS | flags), 0o600))
      return environment
    } catch {
      if let created { mdb_env_close(created) }
      throw StorageError.fromTransaction(error, "Opening the LMDB database in \(directory) failed")
    }
  }

  /// How much to map of a file of this size.
  private static func mappedSize(ofFile fileSize: Int) -> Int {
    (max(fileSize, LMDBEnvironment.initialMapSize) + 0xFFFF) & ~0xFFFF
  }

  /// Opens the environment. If a process with the same identifier died and left slots of readers, opens it a second
  /// time, since LMDB clears these slots only when it closes the environment.
  private static func openWithoutDeadReaders(_ directory: String) throws -> OpaquePointer {
    let environment = try open(directory)
    guard hasReadersOfThisProcess(environment) else { return environment }
    do {
      defer { mdb_env_close(environment) }
      // Throws if they belong to a living process in another container.
      try mapErrors(directory) { try checkLockFile(of: environment, directory: directory) }
    }
    return try open(directory)
  }

  /// Whether LMDB's table of readers has slots of this process, which has just opened the environment. They are from a
  /// process that died and had the same identifier. LMDB considers such a process alive, and would never reuse a page
  /// that one of these readers may see.
  private static func hasReadersOfThisProcess(_ environment: OpaquePointer) -> Bool {
    var isFound = false
    // LMDB passes one line for each slot: the identifier of the process, the thread, and the number of the snapshot.
    let note: @convention(c) (UnsafePointer<CChar>?, UnsafeMutableRawPointer?) -> Int32 = { line, isFound in
      guard let line, let isFound, strtol(line, nil, 10) == Int(getpid()) else { return 0 }
      isFound.assumingMemoryBound(to: Bool.self).pointee = true
      return 0
    }
    // This call fails only without an environment or a function.
    _ = withUnsafeMutablePointer(to: &isFound) { mdb_reader_list(environment, note, $0) }
    return isFound
  }

  /// Throws `StorageError` with code `locked` if LMDB's table of readers cannot be used by this process, or is not for
  /// this database.
  private static func checkLockFile(of environment: OpaquePointer, directory: String) throws {
    // Clears the slots of processes that died while they read, which would prevent pages from ever being reused.
    try LMDBError.check(mdb_reader_check(environment, nil))
    for _ in 0..<1_000 {
      do {
        let isRight = try inTransaction(of: environment, flags: MDB_RDONLY) { transaction in
          // Wrapping: the number is from the lock file, to which another process may have written any number.
          let difference = information(environment).me_last_txnid &- mdb_txn_id(transaction)
          return (0...1).contains(difference)
        }
        if isRight { return }
      } catch let error as LMDBError where error.code == EAGAIN || error.code == EACCES {
        throw StorageError(
          .locked,
          "Another process has the LMDB database in \(directory) open under the same process identifier, \(getpid()), by "
            + "which LMDB distinguishes processes: perhaps one in another container.", underlying: error)
      }
    }
    throw StorageError(
      .locked,
      "Another process has \(directory)/lock.mdb open for a database that was in the place of \(directory)/data.mdb before."
    )
  }

  /// Opens the databases of the environment, which are created if it is empty.
  private static func databases(
    of environment: OpaquePointer, directory: String
  ) throws -> (main: MDB_dbi, entries: MDB_dbi) {
    func metadata(_ transaction: OpaquePointer, _ main: MDB_dbi) throws -> LMDBMetadata {
      guard let metadata = try LMDBMetadata(in: transaction, main: main) else {
        throw StorageError(.unsupported, "\(directory)/data.mdb is the LMDB database of another program.")
      }
      return metadata
    }
    let databases: (MDB_dbi, MDB_dbi)? = try inTransaction(of: environment, flags: MDB_RDONLY) {
      transaction in
      var (main, entries): (MDB_dbi, MDB_dbi) = (0, 0)
      try LMDBError.check(mdb_dbi_open(transaction, nil, 0, &main))
      let metadata = try metadata(transaction, main)
      let result = mdb_dbi_open(transaction, LMDBMetadata.entriesName.description, 0, &entries)
      // The database has never contained an entry.
      if result == MDB_NOTFOUND, metadata == LMDBMetadata() { return nil }
      try LMDBError.check(result)
      return (main, entries)
    }
    if let databases { return databases }
    return try inTransaction(of: environment, flags: 0) { transaction in
      var (main, entries): (MDB_dbi, MDB_dbi) = (0, 0)
      try LMDBError.check(mdb_dbi_open(transaction, nil, 0, &main))
      // Another process may have created the database meanwhile, and may have written to it.
      if try metadata(transaction, main) == LMDBMetadata() {
        try LMDBMetadata().store(in: transaction, main: main)
      }
      try LMDBError.check(
        mdb_dbi_open(transaction, LMDBMetadata.entriesName.description, UInt32(MDB_CREATE), &entries))
      return (main, entries)
    }
  }

  /// Runs `body` in a transaction of an environment that is being opened, in which no other transaction is in progress.
  static func inTransaction<Result>(
    of environment: OpaquePointer, flags: Int32, _ body: (OpaquePointer) throws -> Result
  ) throws -> Result {
    var begun: OpaquePointer?
    var code = mdb_txn_begin(environment, nil, UInt32(flags), &begun)
    for _ in 0..<100 where code == MDB_MAP_RESIZED {
      // Another process has made the database larger since it was mapped.
      var (descriptor, status) = (Int32(-1), stat())
      try LMDBError.check(mdb_env_get_fd(environment, &descriptor))
      guard fstat(descriptor, &status) == 0 else { throw LMDBError(code: errno) }
      try LMDBError.check(mdb_env_set_mapsize(environment, mappedSize(ofFile: Int(status.st_size))))
      code = mdb_txn_begin(environment, nil, UInt32(flags), &begun)
    }
    try LMDBError.check(code)
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

  static func information(_ environment: OpaquePointer) -> MDB_envinfo {
    var information = MDB_envinfo()
    // This call fails only without an environment or without a buffer for the result.
    _ = mdb_env_info(environment, &information)
    return information
  }
}
