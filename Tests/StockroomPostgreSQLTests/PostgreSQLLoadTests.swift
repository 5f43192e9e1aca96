import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport
@testable import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite("PostgreSQL: load and limits", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLLoadTests {
  @Test("10,000 concurrent tasks are served by at most the maximum number of connections")
  func manyTasks() async throws {
    let namespace = newNamespace()
    try await PostgreSQLServer.shared.start()
    let engine = try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection + " application_name=\(namespace)", namespace: namespace,
      maximumConnections: 5, timeLimit: .seconds(300))
    try await withThrowingTaskGroup { group in
      for number in 0..<10_000 {
        group.addTask {
          try await engine.write(value(number), key: key(number))
          #expect(try await engine.read(key: key(number)) == value(number))
        }
      }
      try await group.waitForAll()
    }
    #expect(try await engine.keyCount() == 10_000)
    // Connections stay open, so this is the greatest number of connections.
    try await PostgreSQLServer.shared.execute(
      """
      DO $$ BEGIN
        ASSERT (SELECT count(*) FROM pg_stat_activity WHERE application_name = '\(namespace)') BETWEEN 2 AND 5;
      END $$
      """)
  }

  @Test("100,000 entries are one batch, and hundreds of thousands of keys one request")
  func large() async throws {
    let engine = try await newEngine(newNamespace(), timeLimit: .seconds(300))
    try await engine.write((0..<100_000).map { (key($0), value($0)) })
    let numbers = (0..<TestRun.count(300_000, exhaustive: 1_000_000)).map { $0 % 200_000 }
    #expect(try await engine.read(keys: numbers.map(key)).count == numbers.count { $0 < 100_000 })
    #expect(try await engine.readAllEntries().map(\.key) == (0..<100_000).map(key))
  }

  @Test(
    "A batch is written as a whole, whether or not its values fit into one statement (rule W4)",
    arguments: [(2, 32 << 20), (2, (32 << 20) - 10), (2, (32 << 20) - 100), (65_536, 1 << 10)])
  func statementSize(count: Int, size: Int) async throws {
    let engine = try await newEngine(newNamespace())
    let data = Data(repeating: 1, count: size)
    try await engine.write((0..<count).map { (key($0), data) })
    #expect(try await engine.keyCount() == count)
    #expect(try await engine.read(key: key(0)) == data)
    #expect(try await engine.read(key: key(count - 1)) == data)
    try await engine.removeAllData()
    try await engine.close()
  }

  @Test("Large concurrent writes are several commits of at most 64 MiB of values each")
  func largeGroups() async throws {
    let namespace = newNamespace()
    let engine = try await newEngine(namespace)
    let data = Data(count: 33 << 20)
    try await withThrowingTaskGroup { group in
      for number in 0..<4 { group.addTask { try await engine.write(data, key: key(number)) } }
      try await group.waitForAll()
    }
    #expect(try await engine.keyCount() == 4)
    // A new namespace starts at epoch 2, and each commit increments it.
    try await PostgreSQLServer.shared.execute(
      "DO $$ BEGIN ASSERT (SELECT max(epoch) FROM \"\(namespace)\".commits) >= 6; END $$")
    try await engine.removeAllData()
    try await engine.close()
  }

  @Test("A batch of more than 2 GiB is committed", .enabled(if: TestRun.isExhaustive))
  func hugeBatch() async throws {
    let engine = try await newEngine(newNamespace())
    let data = Data(count: 64 << 20)
    try await engine.write((0..<34).map { (key($0), data) })
    #expect(try await engine.keyCount() == 34)
    #expect(try await engine.read(key: key(33)) == data)
    try await engine.removeAllData()
    try await engine.close()
  }

  /// Distinct keys of 500 bytes.
  private func longKeys(_ count: Int) -> [CacheKey] {
    let beginning = String(repeating: "k", count: 490)
    return (0..<count).map { CacheKey(verbatim: "\(beginning)\(1_000_000_000 + $0)") }
  }

  @Test("A removal of more than 1 GiB of keys is one batch (rule W4)", .enabled(if: TestRun.isExhaustive))
  func hugeRemoval() async throws {
    let engine = try await newEngine(newNamespace())
    let keys = longKeys(2_200_000)
    let ends = [keys[0], keys[keys.count - 1]]
    try await engine.write((ends + [key(1)]).map { ($0, value(1)) })
    try await engine.remove(keys: keys)
    #expect(try await engine.allKeys() == [key(1)])
    try await engine.close()
  }

  @Test(
    "No statement of a batch has more than 64 MiB of keys, and each key is removed by one statement (rule W4)"
  )
  func portionsOfRemovals() throws {
    let removals = longKeys(140_000).map { StorageOperation.remove(key: $0) }
    let write = StorageOperation.write(value(1), key: key(1))
    // A batch of one call, and removals of many calls with a write.
    for requests in [[removals], [[write]] + removals.map { [$0] }] {
      let batch = PostgreSQLBatch(requests, [])
      let steps = batch.steps(UUID(), 2, "", isOpen: false, isPooled: false)
      // An array has a header of 20 bytes.
      let limit = PostgreSQLBatch.statementSize + 20
      #expect(steps.allSatisfy { $0.parameters.allSatisfy { $0.bytes.count <= limit } })
      let removed = steps.filter { $0.statement == .remove }.flatMap(\.parameters)
      #expect(removed.map { $0.bytes.count - 20 }.reduce(0, +) == removals.count * 504)
      #expect(removed.count == 2)
    }
  }

  @Test("An error of the server at the commit is thrown unchanged, and nothing is written")
  func failingCommit() async throws {
    let namespace = newNamespace()
    let engine = try await newEngine(namespace, timeLimit: .seconds(300))
    try await PostgreSQLServer.shared.execute(
      """
      CREATE FUNCTION "\(namespace)".refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''no room'' USING ERRCODE = ''53100''; END';
      CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON "\(namespace)".entries DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.key = 'key-1'::bytea) EXECUTE FUNCTION "\(namespace)".refuse()
      """)
    let error = await #expect(throws: StorageError.self) { try await engine.write(value(1), key: key(1)) }
    #expect(error?.code == .diskFull, "\(String(describing: error))")
    try await engine.write(value(2), key: key(2))
    #expect(try await engine.allKeys() == [key(2)])
    try await engine.close()
  }

  @Test(
    "A cancelled read ends its connection while rows still arrive, so close() need not (rule O4)"
  )
  func cancelledRead() async throws {
    let namespace = newNamespace()
    let server = PostgreSQLServer.shared
    try await server.start()
    let engine = try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(namespace)", namespace: namespace, timeLimit: .seconds(300))
    // More than a minute of rows, so large that the server sends 16 at a time.
    try await server.execute(
      """
      ALTER TABLE "\(namespace)".entries RENAME TO stored;
      CREATE FUNCTION "\(namespace)".slow() RETURNS bytea LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_sleep(0.001); RETURN convert_to(repeat(''v'', 8192), ''UTF8''); END';
      CREATE VIEW "\(namespace)".entries AS
        SELECT number AS sequence, number AS created, number AS updated,
          convert_to(number::text, 'UTF8') AS key, "\(namespace)".slow() AS value
        FROM generate_series(1::bigint, 100000::bigint) AS number
      """)
    let read = Task { try await engine.readAllEntries() }
    let sessions = "SELECT FROM pg_stat_activity WHERE application_name = '\(namespace)'"
    // After the first 512 rows, which the server produces without sending any.
    try await server.wait(until: "EXISTS (\(sessions) AND query LIKE 'FETCH FORWARD 16 %')")
    read.cancel()
    await #expect(throws: CancellationError.self) { try await read.value }
    try await server.wait(until: "NOT EXISTS (\(sessions))")
    try await engine.close()
    // The engine has not been released yet.
    let error = await #expect(throws: StorageError.self) { try await engine.keyCount() }
    #expect(error?.code == .closed)
  }

  @Test("Writes that arrive while their thread cannot be started all fail", .timeLimit(.minutes(60)))
  func noThread() async throws {
    let connector = PostgreSQLConnector(
      try PostgreSQLAddress("host=/nowhere"), try PostgreSQLNamespace("nowhere"),
      PostgreSQLSettings(durability: .full, timeLimit: .seconds(300), isPooled: false))
    let writers = PostgreSQLWriters(PostgreSQLCommitter(connector, ChangeHub()), timeLimit: .seconds(300))
    writers.close()
    await withTaskGroup(of: Void.self) { group in
      for number in 0..<10_000 {
        group.addTask {
          let error = await #expect(throws: StorageError.self) {
            try await writers.submit(.operations([.remove(key: key(number))]))
          }
          #expect(error?.code == .closed)
        }
      }
    }
  }

  @Test("A value beyond the engine's maximum throws .valueTooLarge")
  func tooLarge() async throws {
    let engine = try await newEngine(newNamespace())
    let error = await #expect(throws: StorageError.self) {
      try await engine.write(Data(count: 512 << 20 + 1), key: key(1))
    }
    #expect(error?.code == .valueTooLarge)
  }

  @Test("Engines that write and remove the same keys in different orders agree in the end")
  func noDeadlocks() async throws {
    let namespace = newNamespace()
    let engines = [
      try await newEngine(namespace), try await newEngine(namespace), try await newEngine(namespace),
    ]
    try await withThrowingTaskGroup { group in
      for (number, engine) in engines.enumerated() {
        group.addTask {
          var random = SystemRandomNumberGenerator()
          for round in 0..<60 {
            let keys = (0..<40).shuffled(using: &random).map(key)
            switch (round + number) % 3 {
            case 0: try await engine.write(keys.map { ($0, value(round)) })
            case 1: try await engine.remove(keys: Array(keys.prefix(20)))
            default:
              try await engine.apply(
                keys.prefix(10).map { .remove(key: $0) } + [.write(value(round), key: keys[11])])
            }
          }
        }
      }
      try await group.waitForAll()
    }
    let contents = try await engines[0].readAllEntries()
    for engine in engines { #expect(try await engine.readAllEntries() == contents) }
  }

  @Test("After a lost connection, a subscriber receives everything, and then each change")
  func feedReconnects() async throws {
    let namespace = newNamespace()
    let writer = try await newEngine(namespace)
    let listener = try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection + " application_name=\(namespace)", namespace: namespace,
      timeLimit: .seconds(300))
    var changes = try await listener.changes().makeAsyncIterator()
    try await writer.write(value(1), key: key(1))
    #expect(await changes.next() == .keys([key(1)]))
    try await PostgreSQLServer.shared.execute(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '\(namespace)'")
    #expect(await changes.next() == .everything)
    try await writer.write(value(2), key: key(2))
    // Changes made while the listener connects may be part of that element.
    while let change = await changes.next(), change != .keys([key(2)]) {}
  }

  #if os(Linux)
    @Test("A full disk of the server throws .diskFull, loses nothing, and has no effect once there is space")
    func fullDisk() async throws {
      let disk = try SmallDisk("size=96m")
      let place = try TemporaryDirectory()
      let server = PostgreSQLServer(
        directory: place.parent.appending(path: "server"), settings: ["shared_buffers=16MB"])
      try await server.start()
      try disk.fill(16 << 20)
      try PostgreSQLServer.giveToUser(disk.url)
      try await server.execute("CREATE TABLESPACE small LOCATION '\(disk.url.path)'")
      let engine = try await PostgreSQLStorageEngine(
        server.connection + " options='-c default_tablespace=small'", namespace: "room")
      try await engine.write(value(1), key: key(1))
      var random = SeededRandom(seed: 1)
      let megabyte = random.bytes(1 << 20)
      var written = 0
      let error = await #expect(throws: StorageError.self) {
        while written < 200 {
          try await engine.write(megabyte, key: key(100 + written))
          written += 1
        }
      }
      #expect(error?.code == .diskFull, "\(String(describing: error))")
      #expect(try await engine.read(key: key(1)) == value(1))
      #expect(try await engine.keyCount() == written + 1)
      try disk.makeRoom()
      try await engine.write(megabyte, key: key(2))
      #expect(try await engine.keyCount() == written + 2)
      await server.stop(.immediate)
    }
  #endif
}
