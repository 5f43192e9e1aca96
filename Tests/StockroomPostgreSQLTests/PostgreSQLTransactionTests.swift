import ConformanceKit
import Dispatch
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import Testing

@Suite(
  "PostgreSQL: transactions", .timeLimit(.minutes(60)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLTransactionTests {
  /// Calls `body` while a transaction that has read entry 0 is open. The transaction then makes the changes;
  /// by default it writes entry 1.
  private func whileTransactionIsOpen<Result>(
    of engine: PostgreSQLStorageEngine,
    changing change: @escaping @Sendable (any StorageTransaction) throws -> Void = {
      try $0.write(value(1), key: key(1))
    },
    _ body: () async throws -> Result
  ) async throws -> Result {
    let (beginning, hasBegun) = AsyncStream.makeStream(of: Never.self)
    let isWaiting = DispatchSemaphore(value: 0)
    async let transaction: Void = engine.withTransaction { transaction in
      #expect(try transaction.read(key: key(0)) == value(0))
      hasBegun.finish()
      isWaiting.wait()
      // The body may run again.
      isWaiting.signal()
      try change(transaction)
    }
    for await _ in beginning {}
    let result: Result
    do {
      result = try await body()
    } catch {
      isWaiting.signal()
      throw error
    }
    isWaiting.signal()
    try await transaction
    return result
  }

  @Test("A body reads and counts 20,000 entries in few round trips")
  func manyReads() async throws {
    let server = PostgreSQLServer.shared
    try await server.start()
    let relay = try Relay(to: .unixSocket(server.socket))
    defer { relay.close() }
    let engine = try await PostgreSQLStorageEngine(
      "host=127.0.0.1 port=\(relay.port) user=postgres dbname=postgres sslmode=disable",
      namespace: newNamespace(), timeLimit: .seconds(300))
    let keys = (0..<20_000).map(key)
    try await engine.write(keys.map { ($0, Data([1])) })
    let before = relay.requestCount
    let counts = try await engine.withTransaction { transaction in
      try transaction.write(Data([2]), key: keys[7])
      let found = try transaction.read(keys: [key(-1)] + keys)
      for key in keys { try transaction.write(Data([3]), key: key) }
      try transaction.remove(key: keys[0])
      try transaction.write(Data([3]), key: key(-1))
      return (found.count, found[7], try transaction.keyCount())
    }
    #expect(counts == (20_000, Data([2]), 20_000))
    #expect(relay.requestCount - before < 2_000)
    try await engine.close()
  }

  @Test(
    "A transaction that is cancelled while it waits for another ends at once, and is not performed later (rule N1)"
  )
  func cancelledBeforehand() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name)
    let other = try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection + " application_name=\(name)", namespace: name,
      timeLimit: .seconds(300))
    try await engine.write(value(0), key: key(0))
    try await whileTransactionIsOpen(of: engine) {
      let cancelled = Task { try await other.withTransaction { try $0.write(value(2), key: key(2)) } }
      try await PostgreSQLServer.shared.waitForLock(of: name)
      cancelled.cancel()
      await #expect(throws: CancellationError.self) { try await cancelled.value }
    }
    try await other.write(value(3), key: key(3))
    #expect(try await engine.allKeys().sorted() == [key(0), key(1), key(3)])
    try await engine.close()
    try await other.close()
  }

  @Test("Transactions that are cancelled while they wait leave no server sessions behind (rule N6)")
  func cancelledOften() async throws {
    let name = newNamespace()
    let server = PostgreSQLServer.shared
    let engine = try await newEngine(name)
    let other = try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(name)", namespace: name, timeLimit: .seconds(300))
    try await engine.write(value(0), key: key(0))
    try await whileTransactionIsOpen(of: engine) {
      for number in 2...4 {
        let cancelled = Task {
          try await other.withTransaction { try $0.write(value(number), key: key(number)) }
        }
        try await server.waitForLock(of: name)
        cancelled.cancel()
        await #expect(throws: CancellationError.self) { try await cancelled.value }
        try await server.wait(
          until: """
            NOT EXISTS (
              SELECT FROM pg_stat_activity WHERE application_name = '\(name)' AND wait_event_type = 'Lock')
            """)
      }
    }
    #expect(try await engine.allKeys().sorted() == [key(0), key(1)])
    try await engine.close()
    try await other.close()
  }

  @Test(
    "A removal that waits for a transaction also removes the entry that the transaction has rewritten (rule T1)"
  )
  func removalBehindTransaction() async throws {
    let name = newNamespace()
    let writer = try await newEngine(name)
    let remover = try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection + " application_name=\(name)", namespace: name,
      timeLimit: .seconds(300))
    try await writer.write(value(0), key: key(0))
    try await remover.remove(key: key(1))
    let removal = try await whileTransactionIsOpen(
      of: writer,
      changing: { transaction in
        try transaction.remove(key: key(0))
        try transaction.write(value(1), key: key(0))
      },
      { () async throws -> Task<Void, any Error> in
        let removal = Task { try await remover.remove(key: key(0)) }
        try await PostgreSQLServer.shared.waitForLock(of: name)
        return removal
      })
    try await removal.value
    #expect(try await writer.keyCount() == 0)
  }

  @Test(
    "An engine can be closed and released while the body of a cancelled transaction still runs (rules C5, T5)",
    arguments: [false, true])
  func droppedDuringBody(isClosed: Bool) async throws {
    let isDropped = DispatchSemaphore(value: 0)
    let (outcomes, hasEnded) = AsyncStream.makeStream(of: Bool.self)
    try await cancelTransaction(closing: isClosed) {
      // Times out only if closing or releasing the engine waits for this body.
      hasEnded.yield(isDropped.wait(timeout: .now() + 30) == .success)
      isDropped.signal()
    }
    isDropped.signal()
    var iterator = outcomes.makeAsyncIterator()
    #expect(await iterator.next() == true)
  }

  /// Returns once a transaction has been cancelled and its engine released, while its body still runs.
  ///
  /// - Parameter closesEngine: Whether to close the engine before it is released.
  private func cancelTransaction(
    closing closesEngine: Bool, while body: @escaping @Sendable () -> Void
  ) async throws {
    let engine = try await newEngine(newNamespace())
    let (beginning, hasBegun) = AsyncStream.makeStream(of: Never.self)
    let transaction = Task {
      try await engine.withTransaction { _ in
        hasBegun.finish()
        body()
      }
    }
    for await _ in beginning {}
    transaction.cancel()
    await #expect(throws: CancellationError.self) { try await transaction.value }
    if closesEngine { try await engine.close() }
  }

  @Test(
    "Behind a pooler, a removal sees the changes it has waited for, whatever the default isolation (rule T1)"
  )
  func isolation() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name)
    let pooled = try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection
        + " application_name=\(name) options='-c default_transaction_isolation=serializable'",
      namespace: name, timeLimit: .seconds(300), isPooled: true)
    try await engine.write(value(0), key: key(0))
    let removal = try await whileTransactionIsOpen(of: engine) { () async throws -> Task<Void, any Error> in
      let removal = Task { try await pooled.removeAllData() }
      try await PostgreSQLServer.shared.waitForLock(of: name)
      return removal
    }
    try await removal.value
    #expect(try await engine.keyCount() == 0)
    try await pooled.write(value(4), key: key(4))
    #expect(try await engine.allKeys() == [key(4)])
    try await engine.close()
    try await pooled.close()
  }

  @Test(
    "A scan that the server refuses in a transaction throws the reason, and the engine continues (rule N5)")
  func refusedScan() async throws {
    let server = PostgreSQLServer.shared
    try await server.start()
    let name = "user_" + newNamespace().replacing("-", with: "_").lowercased()
    try await server.execute("CREATE ROLE \(name) LOGIN; CREATE SCHEMA \(name) AUTHORIZATION \(name)")
    let engine = try await PostgreSQLStorageEngine(
      "host=\(server.directory.path) dbname=postgres user=\(name)", namespace: name, timeLimit: .seconds(300))
    try await engine.write(value(1), key: key(1))
    try await server.execute("REVOKE SELECT ON \(name).entries FROM \(name)")
    let error = await #expect(throws: StorageError.self) {
      try await engine.withTransaction { try $0.allKeys() }
    }
    #expect(error?.code == .permissionDenied, "\(String(describing: error))")
    try await server.execute("GRANT SELECT ON \(name).entries TO \(name)")
    #expect(try await engine.withTransaction { try $0.allKeys() } == [key(1)])
    try await engine.close()
  }

  @Test(
    "A key that is not UTF-8 makes a scan in a transaction throw .corrupted, and fails no other transaction"
  )
  func corruptedKey() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name, timeLimit: .seconds(120))
    try await engine.write(value(1), key: key(1))
    try await PostgreSQLServer.shared.execute(
      "INSERT INTO \"\(name)\".entries VALUES (99, 0, 0, '\\xff', '')")
    let error = await #expect(throws: StorageError.self) {
      try await engine.withTransaction { try $0.allKeys() }
    }
    #expect(error?.code == .corrupted, "\(String(describing: error))")
    let afterwards = await #expect(throws: StorageError.self) {
      try await engine.withTransaction { transaction in
        do {
          _ = try transaction.allKeys()
        } catch {
          try transaction.write(value(2), key: key(2))
        }
      }
    }
    #expect(afterwards?.code == .corrupted, "\(String(describing: afterwards))")
    #expect(try await engine.read(key: key(2)) == nil)
    #expect(try await engine.withTransaction { try $0.read(key: key(1)) } == value(1))
    // Transactions that wait at the same time form a group.
    try await withThrowingTaskGroup { group in
      for number in 10..<20 {
        group.addTask {
          try await engine.withTransaction { try $0.write(value(number), key: key(number)) }
        }
        group.addTask {
          let error = await #expect(throws: StorageError.self) {
            try await engine.withTransaction { try $0.allKeys() }
          }
          #expect(error?.code == .corrupted, "\(String(describing: error))")
        }
      }
      try await group.waitForAll()
    }
    #expect(try await engine.keyCount() == 12)
    try await engine.close()
  }

  @Test("All reads of a transaction together take no longer than the time limit (rule N1)")
  func manySlowReads() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name, timeLimit: .seconds(12))
    try await engine.write(value(1), key: key(1))
    // Each response arrives well within a quarter of the limit.
    try await slowDown(name)
    let error = await #expect(throws: StorageError.self) {
      try await engine.withTransaction { transaction in
        for _ in 0..<100 { _ = try transaction.read(key: key(1)) }
      }
    }
    #expect(error?.code == .unavailable, "\(String(describing: error))")
    try await engine.close()
  }

  /// Makes each read of a value take the given number of seconds.
  private func slowDown(_ name: String, by seconds: Double = 0.2) async throws {
    try await PostgreSQLServer.shared.execute(
      """
      ALTER TABLE "\(name)".entries RENAME TO stored;
      CREATE FUNCTION "\(name)".slow(value bytea) RETURNS bytea STABLE LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(\(seconds)); RETURN value; END';
      CREATE VIEW "\(name)".entries AS
        SELECT sequence, created, updated, key, "\(name)".slow(value) AS value FROM "\(name)".stored
      """)
  }

  @Test("Transactions whose reads together exceed the time limit do not all fail (rule N1)")
  func manySlowTransactions() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name, timeLimit: .seconds(12))
    try await engine.write(value(1), key: key(1))
    try await slowDown(name)
    let mayEnd = DispatchSemaphore(value: 0)
    let first = Task { try await engine.withTransaction { _ in mayEnd.wait() } }
    let others = (0..<80).map { _ in
      Task { try await engine.withTransaction { try $0.read(key: key(1)) } }
    }
    // Gives all of them time to queue up as one group, within the deadline of the first one.
    let end = ContinuousClock.now + .seconds(1)
    for _ in 0..<10_000 where ContinuousClock.now < end { await Task.yield() }
    mayEnd.signal()
    try await first.value
    var (succeeded, errors) = (0, Set<StorageError.Code>())
    for other in others {
      do {
        #expect(try await other.value == value(1))
        succeeded += 1
      } catch let error as StorageError {
        errors.insert(error.code)
      }
    }
    #expect(succeeded > 0 && errors.isSubset(of: [.unavailable]))
    try await engine.close()
  }

  @Test("A scan in a transaction reads at most twice as many values as it returns (rule R5)")
  func shortScan() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name, timeLimit: .seconds(40))
    try await engine.write((1...64).map { (key($0), value($0)) })
    try await slowDown(name)
    // Reading all values would take 12.8 seconds, and a response may take 10.
    for limit in [1, 2] {
      let found = try await engine.withTransaction { try $0.scan(.all, limit: limit) }
      #expect(found.count == limit)
    }
    try await engine.close()
  }

  @Test("The time for entries with and without timestamps in one transaction does not grow quadratically")
  func manyEntriesWithAndWithoutTimes() async throws {
    let engine = try await newEngine(newNamespace(), timeLimit: .seconds(60))
    let entries = (0..<60_000).map { (key: key($0), data: value($0)) }
    try await engine.write(entries)
    let one = try #require(try await engine.readEntries(keys: [key(1)]).first)
    try await engine.withTransaction { transaction in
      for (key, data) in entries { try transaction.write(data, key: key) }
      try transaction.writeEntry(one)
    }
    #expect(try await engine.keyCount() == entries.count)
    try await engine.close()
  }

  @Test("A scan in a transaction may take longer than the limit of one response")
  func longScan() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name, timeLimit: .seconds(40))
    // Reading all values takes longer than a quarter of the limit.
    try await PostgreSQLServer.shared.execute(
      """
      INSERT INTO "\(name)".entries
        SELECT number, 0, 0, convert_to('key-' || number, 'UTF8'), ''::bytea
        FROM generate_series(1, 2000) AS number
      """)
    try await slowDown(name, by: 0.006)
    #expect(try await engine.withTransaction { try $0.scan(.all, limit: nil).count } == 2_000)
    try await engine.close()
  }
}
