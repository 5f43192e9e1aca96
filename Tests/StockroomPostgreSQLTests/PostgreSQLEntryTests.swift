import Foundation
import StockroomCPostgreSQL
import StockroomCore
import StockroomEngines
@testable import StockroomPostgreSQL
import Testing

@Suite("PostgreSQL: entries")
struct PostgreSQLEntryTests {
  @Test(
    "A removal committed with a batch does not split a batch that another machine is committing (rule W4)"
  )
  func removalBesideBatches() async throws {
    let (name, server) = (newNamespace(), PostgreSQLServer.shared)
    try await server.start()
    func engine(_ number: Int) async throws -> PostgreSQLStorageEngine {
      try await PostgreSQLStorageEngine(
        server.connection + " application_name=\(name)_\(number)", namespace: name, timeLimit: .seconds(300))
    }
    let (one, two) = (try await engine(1), try await engine(2))
    let keys = ["a", "h", "m", "z"].map { CacheKey(verbatim: $0) }
    let (a, h, m, z) = (keys[0], keys[1], keys[2], keys[3])
    try await two.write(value(0), key: h)
    // Other programs that roll back.
    let insertion = try await OtherProgram(
      "INSERT INTO entries VALUES (0, 0, 0, 'm', '')", "ROLLBACK", in: name)
    let update = try await OtherProgram("UPDATE entries SET value = '' WHERE key = 'h'", "ROLLBACK", in: name)
    // Has inserted the first of three entries, and waits.
    async let first: Void = one.write([a, m, z].map { ($0, value(1)) })
    try await server.waitForLock(of: "\(name)_1")
    async let busy: Void = two.write(value(2), key: h)
    try await server.waitForLock(of: "\(name)_2")
    let batch = Task { try await two.write([a, z].map { ($0, value(2)) }) }
    for _ in 0..<200 { await Task.yield() }
    let removal = Task { try await two.remove(key: z) }
    for _ in 0..<200 { await Task.yield() }
    try await update.end()
    try await busy
    // Both, in one transaction.
    try await server.waitForLock(of: "\(name)_2")
    try await insertion.end()
    try await first
    try await batch.value
    try await removal.value
    let found = (try await one.read(key: a), try await one.read(key: z))
    #expect(found != (value(2), value(1)))
    for engine in [one, two] { try await engine.close() }
  }

  @Test("Entries are written, read, scanned and removed")
  func entries() async throws {
    let namespace = newNamespace()
    let engine = try await newEngine(namespace)
    try await engine.write(value(1), key: key(1))
    try await engine.write([(key(3), value(3)), (key(2), value(2))])
    #expect(try await engine.read(key: key(1)) == value(1))
    #expect(try await engine.read(keys: [key(3), key(9), key(1), key(3)]) == [value(3), value(1), value(3)])
    #expect(try await engine.readAllEntries().map(\.key) == [key(1), key(3), key(2)])
    #expect(try await engine.scan(.all, limit: 2).map(\.key) == [key(1), key(2)])
    #expect(try await engine.keyCount() == 3)
    try await engine.apply([
      .remove(key: key(1)), .write(value(4), key: key(4)), .write(value(5), key: key(1)),
    ])
    #expect(try await engine.readAllEntries().map(\.key) == [key(3), key(2), key(4), key(1)])
    #expect(
      try await engine.withTransaction { transaction in
        try transaction.write(value(6), key: key(6))
        return try transaction.scan(.all, limit: nil).map(\.key)
      } == [key(1), key(2), key(3), key(4), key(6)])
    let changes = try await engine.changes()
    var iterator = changes.makeAsyncIterator()
    let other = try await newEngine(namespace)
    try await other.write(value(7), key: key(7))
    #expect(await iterator.next() == .keys([key(7)]))
    try await engine.removeAllData()
    #expect(try await other.allKeys() == [])
    try await engine.close()
    try await other.close()
  }

  @Test("Entries with given timestamps and others in one commit each get theirs, whether new or existing")
  func times() async throws {
    let engine = try await newEngine(newNamespace())
    try await engine.write([(key(1), value(1)), (key(2), value(2))])
    let created = try await engine.createdAt(key: key(2))
    let dates = (Date(timeIntervalSince1970: -1.25), Date(timeIntervalSince1970: 1_000_000_000.000_000_25))
    let given = [1, 4].map {
      StorageEntry(key: key($0), data: value(10), createdAt: dates.0, updatedAt: dates.1)
    }
    let before = Date() - 0.002
    try await engine.withTransaction { transaction in
      try transaction.write(value(20), key: key(2))
      for entry in given { try transaction.writeEntry(entry) }
      try transaction.write(value(3), key: key(3))
    }
    let entries = try await engine.readAllEntries()
    #expect(entries.map(\.key) == [1, 2, 4, 3].map(key))
    #expect([entries[0], entries[2]] == given)
    #expect(entries[1].createdAt == created)
    #expect([entries[1].updatedAt, entries[3].createdAt].allSatisfy { $0 >= before })
    try await engine.writeEntries([given[0]])
    try await engine.write(value(5), key: key(1))
    #expect(try await engine.createdAt(key: key(1)) == dates.0)
    #expect(try await engine.updatedAt(key: key(1)) ?? before >= before)
    try await engine.close()
  }

  @Test("An impossible epoch is corruption, and nothing is written with it")
  func impossibleEpoch() async throws {
    let namespace = newNamespace()
    let engine = try await newEngine(namespace)
    try await PostgreSQLServer.shared.execute(
      """
      CREATE FUNCTION "\(namespace)".spoil() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.epoch := 9223372036854775807; RETURN NEW; END';
      CREATE TRIGGER spoil BEFORE INSERT ON "\(namespace)".commits
        FOR EACH ROW EXECUTE FUNCTION "\(namespace)".spoil()
      """)
    let error = await #expect(throws: StorageError.self) { try await engine.write(value(1), key: key(1)) }
    #expect(error?.code == .corrupted, "\(String(describing: error))")
    try await PostgreSQLServer.shared.execute(
      "DROP TRIGGER spoil ON \"\(namespace)\".commits; DELETE FROM \"\(namespace)\".commits")
    try await engine.write(value(2), key: key(2))
    #expect(try await engine.allKeys() == [key(2)])
    try await engine.close()
  }

  @Test("A response to a request that was not made is corruption", arguments: [Int64.min, -1, 0, 2, .max])
  func impossibleAnswer(number: Int64) throws {
    let handle = try #require(PQmakeEmptyPGresult(nil, PGRES_TUPLES_OK))
    let result = PostgreSQLResult(handle)
    var attribute = PGresAttDesc()
    var bytes = withUnsafeBytes(of: number.bigEndian) { bytes in bytes.map { CChar(bitPattern: $0) } }
    let hasColumn = PQsetResultAttrs(handle, 1, &attribute)
    let hasRow = PQsetvalue(handle, 0, 0, &bytes, 8)
    #expect(hasColumn == 1 && hasRow == 1)
    let error = #expect(throws: StorageError.self) { _ = try result.positions(in: [key(1)]) }
    #expect(error?.code == .corrupted)
  }

  @Test("A full notification queue throws .unavailable, and is not an error of the value")
  func fullQueue() {
    let queue = PostgreSQLFailure(
      sqlState: "54000", text: "too many notifications in the NOTIFY queue", function: "PreCommit_Notify")
    #expect(StorageError.postgreSQL(queue, "").code == .unavailable)
    let row = PostgreSQLFailure(
      sqlState: "54000", text: "row is too big", function: "RelationGetBufferForTuple")
    #expect(StorageError.postgreSQL(row, "").code == .valueTooLarge)
  }
}
