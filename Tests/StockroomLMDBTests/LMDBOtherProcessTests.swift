#if os(Linux)
  import StockroomCLMDB
  import Foundation
  import Glibc
  import StockroomCore
  import TestFixtures
  import StockroomLMDB
  import Testing

  @Suite("LMDB while other processes wait, write or hold locks", .ownThreads)
  struct LMDBOtherProcessTests {
    /// Calls `body` while another process is in a write transaction. The process ends it after `body` has
    /// returned, or after ten minutes, so that no call waits forever.
    private func whileAnotherWrites(
      in one: TemporaryDirectory, _ two: TemporaryDirectory,
      _ body: (_ isWriting: () -> Bool) async throws -> Void
    ) async throws {
      let signs = try TemporaryDirectory()
      func isThere(_ name: String) -> Bool {
        FileManager.default.fileExists(atPath: signs.url.appending(path: name).path)
      }
      let paths = [one.url.path, two.url.path, signs.url.path]
      async let other: Void = expectWriter(paths)
      while !isThere("begun") { try await Task.sleep(for: .milliseconds(1)) }
      do {
        try await body { !isThere("ended") }
      } catch {
        Issue.record(error)
      }
      try Data().write(to: signs.url.appending(path: "release"))
      await other
    }

    private func expectWriter(_ paths: [String]) async {
      await #expect(processExitsWith: .success) { [paths = paths as [String]] in
        let signs = URL(filePath: paths[2])
        var transactions: [OpaquePointer?] = []
        for path in paths[..<2] {
          var environment: OpaquePointer?
          var transaction: OpaquePointer?
          try #require(mdb_env_create(&environment) == 0)
          try #require(mdb_env_set_maxdbs(environment, 1) == 0)
          try #require(mdb_env_open(environment, path, UInt32(MDB_NOTLS), 0o600) == 0)
          try #require(mdb_txn_begin(environment, nil, 0, &transaction) == 0)
          transactions.append(transaction)
        }
        try Data().write(to: signs.appending(path: "begun"))
        var waits = 0
        while !FileManager.default.fileExists(atPath: signs.appending(path: "release").path), waits < 600_000
        {
          usleep(1_000)
          await Task.yield()
          waits += 1
        }
        try Data().write(to: signs.appending(path: "ended"))
        for transaction in transactions { mdb_txn_abort(transaction) }
      }
    }

    @Test("Closing, releasing and opening engines does not wait for a writer in another process")
    func writerInOtherProcess() async throws {
      let (one, two, three) = (try TemporaryDirectory(), try TemporaryDirectory(), try TemporaryDirectory())
      let closed = try one.engine()
      try await closed.write(value(1), key: key(1))
      var dropped: LMDBStorageEngine? = try two.engine()
      try await dropped?.write(value(1), key: key(1))
      try await whileAnotherWrites(in: one, two) { isWriting in
        try await closed.close()
        dropped = nil
        let other = try three.engine()
        try await other.write(value(1), key: key(1))
        let again = try one.engine()
        #expect(try await again.read(key: key(1)) == value(1))
        #expect(isWriting())
      }
      #expect(try await one.engine().keyCount() == 1)
      #expect(try await two.engine().keyCount() == 1)
    }

    @Test("The readers of a process that died with the same identifier keep no pages in use")
    func readersOfDeadProcess() async throws {
      let (one, two) = (try TemporaryDirectory(), try TemporaryDirectory())
      for place in [one, two] { try await place.engine().close() }
      // Otherwise the first one to open the database would clear the table.
      try await whileAnotherWrites(in: one, two) { _ in
        let table = try ReaderTable(one)
        try table.addReader(ofProcess: getpid())
        #expect(try table.commitsInUse() == [1])
        let engine = try one.engine()
        #expect(try await engine.keyCount() == 0)
        #expect(try !table.commitsInUse().contains(1))
        try await engine.close()
      }
      let engine = try one.engine()
      try await engine.write(value(1), key: key(1))
      #expect(try await engine.keyCount() == 1)
    }

    @Test("A process with the same identifier in another container makes opening throw .locked")
    func sameProcessNumber() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      try await engine.write(value(1), key: key(1))
      try await engine.close()
      // LMDB locks the byte at the offset of its process identifier. An open-file-description lock belongs to
      // the descriptor, so it acts like the lock of another process. The descriptor stays open, because
      // closing it would release LMDB's own locks.
      let file = open(place.url.appending(path: "lock.mdb").path, O_RDWR)
      var lock = flock()
      lock.l_type = Int16(F_WRLCK)
      lock.l_whence = Int16(SEEK_SET)
      lock.l_start = off_t(getpid())
      lock.l_len = 1
      try #require(fcntl(file, 37 /* F_OFD_SETLK */, &lock) == 0)
      #expect(await code { _ = try place.engine() } == .locked)
      lock.l_type = Int16(F_UNLCK)
      try #require(fcntl(file, 37, &lock) == 0)
      #expect(try await place.engine().keyCount() == 1)
    }

    @Test(
      "A process that locks the data file makes opening throw .locked, and delays neither closing nor other places"
    )
    func lockedFile() async throws {
      let (place, other) = (try TemporaryDirectory(), try TemporaryDirectory())
      let engine = try place.engine(lockTimeout: .milliseconds(50))
      try await engine.write(value(1), key: key(1))
      let file = open(place.dataFile.path, O_RDONLY)
      defer { close(file) }
      try #require(flock(file, LOCK_EX) == 0)
      try await engine.write(value(2), key: key(2))
      try await engine.close()
      #expect(await code { _ = try place.engine(lockTimeout: .milliseconds(50)) } == .locked)
      try await other.engine().write(value(1), key: key(1))
      try #require(flock(file, LOCK_UN) == 0)
      #expect(try await place.engine().keyCount() == 2)
    }

    @Test("While an engine is opened and waits for the lock of its file, other places can be opened")
    func openingWhileLocked() async throws {
      let (place, other) = (try TemporaryDirectory(), try TemporaryDirectory())
      try await place.engine().close()
      let lock = open(place.dataFile.path, O_RDONLY | O_CLOEXEC)
      try #require(lock >= 0)
      defer { close(lock) }
      try #require(flock(lock, LOCK_EX) == 0)
      // If the other place had to wait for it, the timeout would expire before the lock is released.
      let opening = try ThreadWork { try place.engine(lockTimeout: .seconds(1_200)) }
      // Waits until it has opened the file, which it cannot lock.
      while !opening.isOver, try descriptorCount(ofFileAt: place.dataFile) < 2 { sched_yield() }
      for _ in 0..<3 {
        let engine = try other.engine()
        try await engine.write(value(1), key: key(1))
        try await engine.close()
      }
      try #require(flock(lock, LOCK_UN) == 0)
      #expect(try await opening.value().keyCount() == 0)
    }

    @Test("An engine that is released while its file is locked closes its files once the lock is released")
    func droppedWhileLocked() async throws {
      let (place, other) = (try TemporaryDirectory(), try TemporaryDirectory())
      var engine: LMDBStorageEngine? = try place.engine(lockTimeout: .seconds(600))
      try await engine?.write(value(1), key: key(1))
      let lock = open(place.dataFile.path, O_RDONLY | O_CLOEXEC)
      defer { close(lock) }
      try #require(flock(lock, LOCK_EX) == 0)
      engine = nil
      // Time for a thread that would close them without the lock.
      for _ in 0..<3 { try await other.engine().close() }
      #expect(try descriptorCount(ofFileAt: place.url.appending(path: "lock.mdb")) > 0)
      try #require(flock(lock, LOCK_UN) == 0)
      // Waits until the other engine is closed.
      #expect(try await place.engine().keyCount() == 1)
    }

    @Test("Idle engines occupy few slots in the reader table")
    func idleReaders() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      try await engine.write((0..<500).map { (key($0), value($0)) })
      try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 0..<300 { group.addTask { try await engine.readAllData().count } }
        for try await count in group { #expect(count == 500) }
      }
      // The table has two cache lines of 64 bytes before the readers. Each reader begins with its process
      // identifier.
      let file = open(place.url.appending(path: "lock.mdb").path, O_RDWR)
      var table = [UInt8](repeating: 0, count: 70_000)
      let count = pread(file, &table, table.count, 0)
      let taken = stride(from: 128, to: count - 63, by: 64).filter { place in
        table[place + 8..<place + 12].contains { $0 != 0 }
      }
      #expect(taken.count <= 16)
    }

    /// As many read transactions as the reader table has slots.
    private func readTransactions(of environment: OpaquePointer?) -> [OpaquePointer] {
      var transactions: [OpaquePointer] = []
      var next: OpaquePointer?
      while mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &next) == 0, let transaction = next {
        transactions.append(transaction)
      }
      return transactions
    }

    @Test(
      "A read with a slot in the reader table needs no other, although another process has outgrown the map"
    )
    func fullTableAndLargerMap() async throws {
      let place = try TemporaryDirectory()
      try await place.engine().close()
      var environment: OpaquePointer?
      #expect(mdb_env_create(&environment) == 0)
      #expect(mdb_env_set_mapsize(environment, 64 << 20) == 0)
      #expect(mdb_env_open(environment, place.url.path, UInt32(MDB_NOTLS), 0o600) == 0)
      let (hasRead, isFull) = (place.url.appending(path: "has-read"), place.url.appending(path: "is-full"))
      async let reading: ExitTest.Result? = #expect(processExitsWith: .success) {
        [url = place.url as URL, hasRead = hasRead as URL, isFull = isFull as URL] in
        let engine = try LMDBStorageEngine(directory: FileManager.Directory(url: url))
        try await engine.write(value(1), key: key(1))
        // The engine keeps the slot of this read.
        try #require(try await engine.read(key: key(1)) == value(1))
        try Data().write(to: hasRead)
        try await waitForFile(isFull)
        try #require(try await engine.read(key: key(1)) == value(1))
        try await engine.close()
      }
      defer { try? Data().write(to: isFull) }
      try await waitForFile(hasRead)
      try put(Data(count: 8 << 20), into: environment)
      let transactions = readTransactions(of: environment)
      #expect(!transactions.isEmpty)
      try Data().write(to: isFull)
      _ = await reading
      for transaction in transactions { mdb_txn_abort(transaction) }
      mdb_env_close(environment)
    }

    /// Stores a value of another program beside the entries.
    private func put(_ value: Data, into environment: OpaquePointer?) throws {
      var transaction: OpaquePointer?
      try #require(mdb_txn_begin(environment, nil, 0, &transaction) == 0)
      var database: MDB_dbi = 0
      try #require(mdb_dbi_open(transaction, nil, 0, &database) == 0)
      var (key, value) = (Data("other".utf8), value)
      let result = key.withUnsafeMutableBytes { key in
        value.withUnsafeMutableBytes { value in
          var (name, data) = (
            MDB_val(mv_size: key.count, mv_data: key.baseAddress),
            MDB_val(mv_size: value.count, mv_data: value.baseAddress)
          )
          return mdb_put(transaction, database, &name, &data, 0)
        }
      }
      try #require(result == 0)
      try #require(mdb_txn_commit(transaction) == 0)
    }

    @Test("A read throws .locked if the reader table has no free slot")
    func fullTable() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine()
      try await engine.write(value(1), key: key(1))
      // The other environment of this process stays open, because closing it would release LMDB's own locks.
      var environment: OpaquePointer?
      #expect(mdb_env_create(&environment) == 0)
      #expect(mdb_env_open(environment, place.url.path, UInt32(MDB_NOTLS), 0o600) == 0)
      let transactions = readTransactions(of: environment)
      #expect(await code { _ = try await engine.read(key: key(1)) } == .locked)
      try await engine.write(value(2), key: key(1))
      for transaction in transactions { mdb_txn_abort(transaction) }
      #expect(try await engine.read(key: key(1)) == value(2))
    }
  }

  /// Waits up to two minutes for a file that another process creates.
  private func waitForFile(_ url: URL) async throws {
    let end = ContinuousClock.now + .seconds(120)
    while access(url.path, F_OK) != 0, ContinuousClock.now < end {
      try await Task.sleep(for: .milliseconds(1))
    }
    try #require(access(url.path, F_OK) == 0)
  }
#endif
