import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite("PostgreSQL: failover", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLFailoverTests {
  /// The number of failovers. Each takes several seconds.
  private static let rounds =
    ProcessInfo.processInfo.environment["STOCKROOM_FAILOVERS"].flatMap { Int($0) } ?? 1

  @Test(
    "When the primary dies under load, engines continue with the standby, and no acknowledged write is lost")
  func failsOver() async throws {
    for _ in 0..<Self.rounds { try await failOver() }
  }

  @Test(
    "Until the standby is promoted, calls throw .unavailable or .outcomeUnknown, not .readOnly")
  func beforePromotion() async throws {
    let place = try TemporaryDirectory()
    let (first, second) = try await PostgreSQLServer.startPair(in: place.parent)
    let engine = try await PostgreSQLStorageEngine(
      "host=\(first.directory.path),\(second.directory.path) user=postgres dbname=postgres",
      timeLimit: .seconds(16))
    try await engine.write(value(1), key: key(1))
    await first.stop(.killed)
    let calls: [@Sendable () async throws -> Void] = [
      { _ = try await engine.read(key: key(1)) }, { _ = try await engine.readAllEntries() },
      { try await engine.write(value(2), key: key(1)) },
    ]
    await withTaskGroup(of: Void.self) { group in
      for call in calls {
        group.addTask {
          let error = await #expect(throws: StorageError.self) { try await call() }
          #expect(
            error?.code == .unavailable || error?.code == .outcomeUnknown, "\(String(describing: error))")
        }
      }
    }
    await second.stop(.fast)
  }

  @Test("A standby is read and waited for even if sessions are serializable by default (rule N3)")
  func serializableSessions() async throws {
    let place = try TemporaryDirectory()
    let (first, second) = try await PostgreSQLServer.startPair(in: place.parent)
    func open(
      _ servers: [PostgreSQLServer], _ access: StorageAccess = .readWrite, isPooled: Bool = false
    ) async throws -> PostgreSQLStorageEngine {
      try await PostgreSQLStorageEngine(
        "host=\(servers.map(\.directory.path).joined(separator: ",")) user=postgres dbname=postgres "
          + "options='-c default_transaction_isolation=serializable'", timeLimit: .seconds(8),
        isPooled: isPooled, access: access)
    }
    let engine = try await open([first, second])
    try await engine.write(value(1), key: key(1))
    let standbyOnly = await #expect(throws: StorageError.self) { _ = try await open([second]) }
    #expect(standbyOnly?.code == .readOnly, "\(String(describing: standbyOnly))")
    while true {
      do {
        let reader = try await open([second], .readOnly)
        let found = try await reader.readAllDataAndKeys()
        let same = try await reader.read(key: key(1))
        try await reader.close()
        if found.map(\.data) == [value(1)], same == value(1) { break }
      } catch let error as StorageError where error.code == .unsupported {
        // The tables have not been replicated yet.
      }
    }
    // Each of its transactions may have another session.
    let pooled = try await open([second], .readOnly, isPooled: true)
    #expect(try await pooled.read(key: key(1)) == value(1))
    #expect(try await pooled.read(keys: [key(1), key(2)]) == [value(1)])
    #expect(try await pooled.keyCount() == 1)
    #expect(try await pooled.readAllEntries().map(\.data) == [value(1)])
    #expect(try await pooled.readEntries(keys: (0..<20_000).map(key)).map(\.data) == [value(1)])
    try await pooled.close()
    await first.stop(.killed)
    let waiting = await #expect(throws: StorageError.self) { try await engine.write(value(2), key: key(2)) }
    #expect(waiting?.code == .unavailable, "\(String(describing: waiting))")
    try await second.execute("SELECT pg_promote()")
    try await engine.write(value(3), key: key(1))
    #expect(try await engine.readAllData() == [value(3)])
    try await engine.close()
    await second.stop(.fast)
  }

  /// Expects that a read-only engine uses the first of its servers, primary or standby, and never writes.
  private func expectReading(
    _ engine: PostgreSQLStorageEngine, _ primary: PostgreSQLServer, _ standby: PostgreSQLServer
  ) async throws {
    let key = CacheKey(verbatim: "standby")
    try await engine.write(value(0), key: key)
    while true {
      do {
        let reader = try await open([standby], .readOnly)
        let found = try await reader.read(key: key)
        try await reader.close()
        if found == value(0) { break }
      } catch let error as StorageError where error.code == .unsupported {
        // The tables have not been replicated yet.
      }
    }
    let reader = try await open([standby, primary], .readOnly)
    let other = try await open([primary, standby], .readOnly)
    // From here on the two servers differ.
    try await standby.execute("SELECT pg_wal_replay_pause()")
    try await standby.execute(
      "DO $$ BEGIN WHILE pg_get_wal_replay_pause_state() <> 'paused' LOOP PERFORM pg_sleep(0.001); END LOOP; END $$"
    )
    try await engine.write(value(1), key: key)
    #expect(try await reader.read(key: key) == value(0))
    #expect(try await reader.readAllEntries().map(\.data) == [value(0)])
    #expect(try await reader.scan(.all, limit: nil).map(\.key) == [key])
    #expect(try await other.read(key: key) == value(1))
    let calls: [() async throws -> Void] = [
      { try await reader.write(value(2), key: key) }, { try await reader.removeAllData() },
      { try await reader.withTransaction { try $0.remove(key: key) } },
    ]
    for call in calls {
      let error = await #expect(throws: StorageError.self) { try await call() }
      #expect(error?.code == .readOnly)
    }
    try await standby.execute("SELECT pg_wal_replay_resume()")
    while try await reader.read(key: key) != value(1) {}
    for reader in [reader, other] { try await reader.close() }
    try await engine.remove(key: key)
  }

  @Test(
    "A write has no effect if the server stops waiting for replication of the engine's own setup (rule N4)"
  )
  func unreplicatedClaim() async throws {
    let place = try TemporaryDirectory()
    let server = PostgreSQLServer(
      directory: place.parent.appending(path: "1"),
      settings: PostgreSQLServer.clusterSettings + ["synchronous_standby_names=nobody"])
    try await server.start()
    // Creates the tables without a standby.
    try await PostgreSQLStorageEngine(server.connection, durability: .process).close()
    let engine = try await PostgreSQLStorageEngine(server.connection, timeLimit: .seconds(20))
    let write = Task { try await engine.write(value(1), key: key(1)) }
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"
    try await server.wait(until: "EXISTS (SELECT \(waiting))")
    try await server.execute("SELECT pg_cancel_backend(pid) \(waiting)")
    let error = await #expect(throws: StorageError.self) { try await write.value }
    #expect(error?.code == .unavailable, "\(String(describing: error))")
    #expect(try await engine.read(key: key(1)) == nil)
    await server.stop(.immediate)
  }

  private func open(_ servers: [PostgreSQLServer], _ access: StorageAccess = .readWrite) async throws
    -> PostgreSQLStorageEngine
  {
    try await PostgreSQLStorageEngine(
      "host=\(servers.map(\.directory.path).joined(separator: ",")) user=postgres dbname=postgres",
      timeLimit: .seconds(300), access: access)
  }

  private func failOver() async throws {
    let place = try TemporaryDirectory()
    let (first, second) = try await PostgreSQLServer.startPair(in: place.parent)

    let standbyOnly = await #expect(throws: StorageError.self) {
      _ = try await PostgreSQLStorageEngine(second.connection, timeLimit: .seconds(15))
    }
    #expect(standbyOnly?.code == .readOnly)

    let engine = try await open([first, second])
    try await expectReading(engine, first, second)
    let reader = try await open([first, second], .readOnly)
    let counts = Counts()
    try await withThrowingTaskGroup { group in
      for task in 0..<64 {
        group.addTask {
          while await !counts.isOver {
            let next = await counts.next(of: task)
            do {
              try await engine.write(Data(String(next).utf8), key: key(task))
              await counts.acknowledge(next, of: task)
            } catch let error as StorageError where [.unavailable, .outcomeUnknown].contains(error.code) {
              await counts.doubt(next, of: task, isUnknown: error.code == .outcomeUnknown)
            }
          }
        }
      }
      await counts.wait(for: 1_000)
      await first.stop(.killed)
      try await second.execute("SELECT pg_promote()")
      let before = await counts.acknowledged
      await counts.wait(for: before + 1_000)
      await counts.end()
      try await group.waitForAll()
    }
    for task in 0..<64 {
      let stored = try await engine.read(key: key(task))
      let found = stored.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
      let possible = await counts.possible(task)
      #expect(possible.contains(found), "\(found) \(possible)")
      // This engine has lost its server too.
      #expect(try await reader.read(key: key(task)) == stored)
    }
    try await reader.close()
    // The standby has answered the calls that were in flight when the primary died.
    #expect(await counts.unknown == 0)
    try await engine.close()
    await second.stop(.fast)
  }
}

/// The increasing numbers that tasks have written, each under its own key.
private actor Counts {
  private var ranges: [Int: ClosedRange<Int>] = [:]
  private(set) var acknowledged = 0
  private(set) var unknown = 0
  private(set) var isOver = false
  private var waiting: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []

  func next(of task: Int) -> Int { (ranges[task]?.upperBound ?? 0) + 1 }

  /// From the last acknowledged number to the last one that may have been written.
  func possible(_ task: Int) -> ClosedRange<Int> { ranges[task] ?? 0...0 }

  func acknowledge(_ number: Int, of task: Int) {
    ranges[task] = number...number
    acknowledged += 1
    let ready = waiting.filter { $0.count <= acknowledged }
    waiting.removeAll { $0.count <= acknowledged }
    for waiter in ready { waiter.continuation.resume() }
  }

  func doubt(_ number: Int, of task: Int, isUnknown: Bool) {
    // A number is never written twice, so that a late write is detected.
    ranges[task] = (ranges[task]?.lowerBound ?? 0)...number
    if isUnknown { unknown += 1 }
  }

  func wait(for count: Int) async {
    if acknowledged >= count { return }
    await withCheckedContinuation { waiting.append((count, $0)) }
  }

  func end() { isOver = true }
}
