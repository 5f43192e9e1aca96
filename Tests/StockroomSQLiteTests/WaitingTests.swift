import Foundation
import StockroomCore
import StockroomSQLite
import TestFixtures
import Testing

/// Which calls wait for which, and for how long (rules C5, O5).
@Suite(.serialized) struct WaitingTests {
  @Test("A write waits for the write lock of another process up to the lock timeout")
  func writeLock() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory, lockTimeout: .milliseconds(20))
    try await engine.write(data("x"), key: key(0))
    let other = try RawConnection(place.database)
    try other.run("BEGIN IMMEDIATE")
    await expectError(.locked, naming: place.database) { try await engine.write(data("y"), key: key(0)) }
    #expect(try await engine.read(key: key(0)) == data("x"))
    try other.run("COMMIT")
    try await engine.write(data("z"), key: key(0))
    try await engine.close()
  }

  #if os(macOS) || os(Linux)
    @Test(
      "A process with read access only can delay writers by the lock timeout, and readers not at all",
      .ownThreads)
    func readLocks() async throws {
      let place = try TestPlace()
      let engine = try SQLiteStorageEngine(directory: place.directory)
      try await engine.write(data("x"), key: key(0))
      #expect(try await engine.read(key: key(0)) == data("x"))
      let descriptor = open(place.sharedMemory, O_RDONLY)
      defer { close(descriptor) }
      var lock = flock()
      lock.l_type = Int16(F_RDLCK)
      lock.l_whence = Int16(SEEK_SET)
      // The locks of writers, checkpoints and recoveries: https://sqlite.org/walformat.html#wal_locks
      lock.l_start = 120
      lock.l_len = 3
      try #require(fcntl(descriptor, F_SETLK, &lock) == 0)
      await #expect(processExitsWith: .success) {
        [url = place.url as URL, database = place.database as String] in
        let engine = try SQLiteStorageEngine(directory: .init(url: url), lockTimeout: .milliseconds(50))
        await expectError(.locked, naming: database) { try await engine.write(data("y"), key: key(0)) }
        #expect(try await engine.read(key: key(0)) == data("x"))
        try await engine.close()
      }
      lock.l_type = Int16(F_UNLCK)
      try #require(fcntl(descriptor, F_SETLK, &lock) == 0)
      try await engine.write(data("y"), key: key(0))
      #expect(try await engine.read(key: key(0)) == data("y"))
      try await engine.close()
    }
  #endif

  @Test("Releasing an engine does not wait for the disk (rule C5), and checkpoints the log (rule O4)")
  func dropping() async throws {
    try #require(FaultyFiles.areInstalled)
    let place = try TestPlace()
    var engine: SQLiteStorageEngine? = try SQLiteStorageEngine(directory: place.directory)
    try await engine?.write(data("x"), key: key(0))
    let isDropped = DispatchSemaphore(value: 0)
    let heldUp = Counter()
    let path = try place.directory.resolvedPath
    let sync = FaultyFiles.begin(.sync, in: path) { _ in
      // Bounded, so that a failing test ends.
      if isDropped.wait(timeout: .now() + 10) == .timedOut { heldUp.increment() }
      isDropped.signal()
      return false
    }
    let (closed, continuation) = AsyncStream<Void>.makeStream()
    let close = FaultyFiles.begin(.close, in: path) { file in
      if file.hasSuffix(".sqlite3") { continuation.yield() }
      return false
    }
    engine = nil
    isDropped.signal()
    #expect(heldUp.count == 0)
    for await _ in closed { break }
    #expect(try size(of: place.log) == nil)
    FaultyFiles.end(sync)
    FaultyFiles.end(close)
  }

  @Test(
    "Releasing an engine with a subscriber does not wait until the connection of its change feed is closed (rule C5)"
  )
  func droppingWithSubscriber() async throws {
    try #require(FaultyFiles.areInstalled)
    let place = try TestPlace()
    var engine: SQLiteStorageEngine? = try SQLiteStorageEngine(directory: place.directory)
    try await engine?.write(data("x"), key: key(0))
    var changes = try await engine?.changes().makeAsyncIterator()
    let isDropped = DispatchSemaphore(value: 0)
    let heldUp = Counter()
    let (closed, continuation) = AsyncStream<Void>.makeStream()
    let close = FaultyFiles.begin(.close, in: try place.directory.resolvedPath) { file in
      guard file.hasSuffix(".sqlite3") else { return false }
      // Bounded, so that a failing test ends.
      if isDropped.wait(timeout: .now() + 10) == .timedOut { heldUp.increment() }
      isDropped.signal()
      continuation.yield()
      return false
    }
    engine = nil
    isDropped.signal()
    #expect(heldUp.count == 0)
    let end = await changes?.next()
    #expect(end == nil)
    // The connection of the feed, and the writing connection.
    var count = 0
    for await _ in closed {
      count += 1
      if count == 2 { break }
    }
    FaultyFiles.end(close)
  }

  #if !canImport(Darwin)
    @Test("Many tasks that count many entries share a few connections", .ownThreads)
    func manyCounts() async throws {
      await #expect(processExitsWith: .success) {
        let place = try TestPlace()
        let engine = try SQLiteStorageEngine(directory: place.directory)
        // More entries than are counted without a pause.
        try await engine.write((0..<300_000).map { (key($0), Data(count: 120)) })
        var limit = rlimit()
        try #require(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
        limit.rlim_cur = 160
        try #require(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
        try await withThrowingTaskGroup(of: Int.self) { group in
          for _ in 0..<150 { group.addTask { try await engine.keyCount() } }
          for try await count in group { try #require(count == 300_000) }
        }
        try await engine.close()
      }
    }
  #endif

  /// A bulk read method, by name.
  struct BulkRead: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let run: @Sendable (SQLiteStorageEngine) async throws -> Void
  }

  static let keys = (0..<3_000).map(key)
  static let bulkReads = [
    BulkRead(testDescription: "readAllData") { _ = try await $0.readAllData() },
    BulkRead(testDescription: "readAllDataAndKeys") { _ = try await $0.readAllDataAndKeys() },
    BulkRead(testDescription: "readAllEntries") { _ = try await $0.readAllEntries() },
    BulkRead(testDescription: "allKeys") { _ = try await $0.allKeys() },
    BulkRead(testDescription: "read(keys:)") { _ = try await $0.read(keys: keys) },
    BulkRead(testDescription: "readDataAndKeys") { _ = try await $0.readDataAndKeys(keys: keys) },
    BulkRead(testDescription: "keysExist") { _ = try await $0.keysExist(keys) },
    BulkRead(testDescription: "scan") { _ = try await $0.scan(.all, limit: nil) },
    BulkRead(testDescription: "keyCount") { _ = try await $0.keyCount() },
  ]

  @Test("A write succeeds while every processor runs bulk reads in a loop", arguments: bulkReads)
  func bulkReadsGiveWay(read: BulkRead) async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    try await engine.write(Self.keys.map { ($0, Data(count: 100)) })
    let isDone = Counter()
    // So that a failing test ends. On a busy machine the write may get no processor for seconds.
    let end = ContinuousClock.now + .seconds(60)
    try await withThrowingTaskGroup { group in
      for _ in 0..<2 * ProcessInfo.processInfo.activeProcessorCount {
        group.addTask {
          while isDone.count == 0, ContinuousClock.now < end { try await read.run(engine) }
        }
      }
      try await engine.write(Data(count: 100), key: key(0))
      #expect(ContinuousClock.now < end)
      isDone.increment()
      try await group.waitForAll()
    }
    try await engine.close()
  }

  @Test("A bulk read returns one snapshot, although others write during its pauses")
  func oneMoment() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    try await engine.write(Self.keys.map { ($0, Data([0])) })
    let isDone = Counter()
    try await withThrowingTaskGroup { group in
      group.addTask {
        for round in UInt8(1)...5 { try await engine.write(Self.keys.map { ($0, Data([round])) }) }
        isDone.increment()
      }
      for _ in 0..<2 {
        group.addTask {
          while isDone.count == 0 {
            let (all, asked) = (try await engine.readAllData(), try await engine.read(keys: Self.keys))
            #expect(Set(all).count == 1)
            #expect(Set(asked).count == 1)
          }
        }
      }
      try await group.waitForAll()
    }
    try await engine.close()
  }
}
