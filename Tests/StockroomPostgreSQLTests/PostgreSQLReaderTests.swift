import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import Testing

@Suite(
  "PostgreSQL: reading connections", .timeLimit(.minutes(60)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLReaderTests {
  private let server = PostgreSQLServer.shared

  @Test("Reads use as many connections as the role allows, if the engine's maximum is higher (rule N6)")
  func connectionLimit() async throws {
    try await server.start()
    let name = "user_" + newNamespace().replacing("-", with: "_").lowercased()
    try await server.execute(
      "CREATE ROLE \(name) LOGIN CONNECTION LIMIT 2; CREATE SCHEMA \(name) AUTHORIZATION \(name)")
    let engine = try await PostgreSQLStorageEngine(
      "host=\(server.directory.path) dbname=postgres user=\(name)", namespace: name, maximumConnections: 8,
      timeLimit: .seconds(300))
    // The writing connection is one of the two.
    try await engine.write((0..<100).map { (key($0), value($0)) })
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<1_000 {
        group.addTask {
          let found = try await engine.read(key: key(number % 100))
          #expect(found == value(number % 100))
        }
      }
      try await group.waitForAll()
    }
    for number in 0..<20 { #expect(try await engine.read(key: key(number)) == value(number)) }
    #expect(try await engine.readAllEntries().count == 100)
    try await engine.close()
  }

  @Test(
    "Reads, writes and a change feed share as few connections as the role allows (rule N6)",
    arguments: [1, 2, 3])
  func fewConnections(limit: Int) async throws {
    try await server.start()
    let name = "user_" + newNamespace().replacing("-", with: "_").lowercased()
    try await server.execute(
      "CREATE ROLE \(name) LOGIN CONNECTION LIMIT \(limit); CREATE SCHEMA \(name) AUTHORIZATION \(name)")
    let engine = try await PostgreSQLStorageEngine(
      "host=\(server.directory.path) dbname=postgres user=\(name)", namespace: name, timeLimit: .seconds(120))
    // These take all connections, and one of them always reads.
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<20 { group.addTask { _ = try await engine.read(key: key(number)) } }
      try await group.waitForAll()
    }
    let reading = Task {
      do {
        while true { _ = try await engine.read(key: key(0)) }
      } catch is CancellationError {}
    }
    for number in 0..<3 { try await engine.write(value(number), key: key(1)) }
    let changes = try await limit > 1 ? engine.changes() : nil
    try await engine.write(value(3), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(3))
    reading.cancel()
    try await reading.value
    #expect(try await engine.withTransaction { try $0.read(key: key(1)) } == value(3))
    #expect(try await engine.allKeys() == [key(1)])
    withExtendedLifetime(changes) {}
    try await engine.close()
  }

  @Test("A session that has lost its prepared statements is replaced (rule N3)")
  func lostStatements() async throws {
    let name = newNamespace()
    let engine = try await newEngine(name)
    try await engine.write(value(1), key: key(1))
    try await server.execute(
      """
      CREATE FUNCTION "\(name)".forget() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN DEALLOCATE ALL; RETURN NEW; END';
      CREATE TRIGGER forget BEFORE INSERT ON "\(name)".entries
        FOR EACH ROW EXECUTE FUNCTION "\(name)".forget();
      ALTER TABLE "\(name)".entries RENAME TO stored;
      CREATE FUNCTION "\(name)".forget(value bytea) RETURNS bytea VOLATILE LANGUAGE plpgsql AS
        'BEGIN DEALLOCATE ALL; RETURN value; END';
      CREATE VIEW "\(name)".entries AS
        SELECT sequence, created, updated, key, "\(name)".forget(value) AS value FROM "\(name)".stored
      """)
    for _ in 0..<3 { #expect(try await engine.read(key: key(1)) == value(1)) }
    try await server.execute(
      "DROP VIEW \"\(name)\".entries; ALTER TABLE \"\(name)\".stored RENAME TO entries")
    for number in 2..<5 { try await engine.write(value(number), key: key(1)) }
    #expect(try await engine.withTransaction { try $0.read(key: key(1)) } == value(4))
    try await engine.close()
  }

  @Test("A value that the server cannot read fails no other read (rule R4)")
  func unreadableValue() async throws {
    let name = newNamespace()
    try await server.start()
    let engine = try await PostgreSQLStorageEngine(
      server.connection, namespace: name, maximumConnections: 3, timeLimit: .seconds(300))
    try await engine.write((0..<100).map { (key($0), value($0)) })
    try await server.execute(
      """
      ALTER TABLE "\(name)".entries RENAME TO stored;
      CREATE FUNCTION "\(name)".broken(value bytea) RETURNS bytea STABLE LANGUAGE plpgsql AS
        'BEGIN IF value = ''value-7'' THEN RAISE EXCEPTION ''broken'' USING ERRCODE = ''XX001''; END IF; RETURN value; END';
      CREATE VIEW "\(name)".entries AS
        SELECT sequence, created, updated, key, "\(name)".broken(value) AS value FROM "\(name)".stored
      """)
    for _ in 0..<20 {
      await withTaskGroup(of: Void.self) { group in
        for number in 0..<100 {
          group.addTask {
            do {
              let data = try await engine.read(key: key(number))
              #expect(number != 7 && data == value(number))
            } catch {
              #expect(number == 7 && (error as? StorageError)?.code == .corrupted, "\(number): \(error)")
            }
          }
        }
      }
    }
    try await engine.close()
  }

  @Test(
    "A read that the server aborts because of a conflict is retried after a pause (rule N2)")
  func conflicts() async throws {
    let name = newNamespace()
    try await server.start()
    let engine = try await PostgreSQLStorageEngine(
      server.connection, namespace: name, maximumConnections: 3, timeLimit: .seconds(12))
    try await engine.write(value(1), key: key(1))
    try await server.execute(
      """
      ALTER TABLE "\(name)".entries RENAME TO stored;
      CREATE SEQUENCE "\(name)".attempts;
      CREATE FUNCTION "\(name)".refused(value bytea) RETURNS bytea VOLATILE LANGUAGE plpgsql AS
        'BEGIN PERFORM nextval(''"\(name)".attempts''); RAISE EXCEPTION ''conflict'' USING ERRCODE = ''40001''; END';
      CREATE VIEW "\(name)".entries AS
        SELECT sequence, created, updated, key, "\(name)".refused(value) AS value FROM "\(name)".stored
      """)
    await #expect(throws: StorageError.self) { try await engine.read(key: key(1)) }
    // Without a pause there would be thousands.
    try await server.wait(until: "(SELECT last_value BETWEEN 2 AND 100 FROM \"\(name)\".attempts)")
    try await engine.close()
  }

  @Test("A read on a connection that no longer responds is repeated on another one (rules N1, N2)")
  func silentConnection() async throws {
    let name = newNamespace()
    try await server.start()
    let engine = try await PostgreSQLStorageEngine(
      server.connection + " application_name=\(name)", namespace: name, maximumConnections: 3,
      timeLimit: .seconds(20))
    try await engine.write(value(1), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(1))
    // Signals the sessions that have read a value.
    func signal(_ signal: String) async throws {
      try await server.execute(
        """
        COPY (
          SELECT pid FROM pg_stat_activity WHERE application_name = '\(name)' AND query LIKE 'SELECT value FROM%'
        ) TO PROGRAM 'xargs sh -c ''kill -\(signal) "$@"'' sh'
        """)
    }
    try await signal("STOP")
    let read = Task { try await engine.read(key: key(1)) }
    let result = await read.result
    try await signal("CONT")
    #expect(try result.get() == value(1))
    try await engine.close()
  }

  @Test("An endless loop of single reads does not block a scan, even on a single connection (rule C5)")
  func scanAmongReads() async throws {
    let name = newNamespace()
    try await server.start()
    let engine = try await PostgreSQLStorageEngine(
      server.connection, namespace: name, maximumConnections: 3, timeLimit: .seconds(60))
    try await engine.write((0..<100).map { (key($0), value($0)) })
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<64 {
        group.addTask {
          do {
            while true {
              let found = try await engine.read(key: key(number))
              #expect(found == value(number))
            }
          } catch is CancellationError {}
        }
      }
      for _ in 0..<20 {
        let found = try await engine.scan(.all, limit: nil)
        #expect(found.count == 100)
      }
      group.cancelAll()
    }
    try await engine.close()
  }

  @Test("The engine pauses between connections to a server that ends each session at its first statement")
  func pauses() async throws {
    let (name, other) = (newNamespace(), newNamespace())
    let engine = try await newEngine(name, timeLimit: .seconds(8))
    try await engine.write(value(1), key: key(1))
    // In the meantime, on a server that ends each session at its first commit.
    let writer = try await newEngine(other, timeLimit: .seconds(8))
    try await server.execute(
      """
      CREATE SEQUENCE "\(other)".commits_begun;
      CREATE FUNCTION "\(other)".refuse() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN
        PERFORM nextval('"\(other)".commits_begun');
        RAISE EXCEPTION 'shutting down' USING ERRCODE = '57P01';
      END $body$;
      CREATE TRIGGER refuse BEFORE INSERT ON "\(other)".entries
        FOR EACH ROW EXECUTE FUNCTION "\(other)".refuse()
      """)
    let commit = Task { try await writer.write(value(1), key: key(1)) }
    // The error of a primary that has become a standby. A sequence advances even without a commit.
    try await server.execute(
      """
      CREATE SEQUENCE "\(name)".writes;
      CREATE SEQUENCE "\(name)".reads;
      CREATE FUNCTION "\(name)".refuse_write() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN
        PERFORM nextval('"\(name)".writes');
        RAISE EXCEPTION 'a standby' USING ERRCODE = '25006';
      END $body$;
      CREATE FUNCTION "\(name)".refuse_read(value bytea) RETURNS bytea LANGUAGE plpgsql AS $body$ BEGIN
        PERFORM nextval('"\(name)".reads');
        RAISE EXCEPTION 'a standby' USING ERRCODE = '25006';
      END $body$;
      CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON "\(name)".commits
        FOR EACH ROW EXECUTE FUNCTION "\(name)".refuse_write();
      ALTER TABLE "\(name)".entries RENAME TO stored;
      CREATE VIEW "\(name)".entries AS
        SELECT sequence, created, updated, key, "\(name)".refuse_read(value) AS value FROM "\(name)".stored
      """)
    await #expect(throws: StorageError.self) { try await engine.read(key: key(1)) }
    await #expect(throws: StorageError.self) { try await engine.remove(key: key(1)) }
    await #expect(throws: StorageError.self) { try await commit.value }
    // The pauses grow to a third of a second, which limits the attempts within the time limit.
    for sequence in ["\"\(name)\".writes", "\"\(name)\".reads", "\"\(other)\".commits_begun"] {
      try await server.execute(
        """
        DO $$ BEGIN
          ASSERT (SELECT last_value FROM \(sequence)) BETWEEN 2 AND 40;
        END $$
        """)
    }
    try await engine.close()
    try await writer.close()
  }
}
