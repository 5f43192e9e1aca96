import Foundation
import StockroomCore
import StockroomEngines
@testable import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite("PostgreSQL: opening", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLOpeningTests {
  private func error(
    _ connection: String, namespace: String = newNamespace(), timeLimit: Duration = .seconds(300)
  ) async -> StorageError? {
    do {
      _ = try await PostgreSQLStorageEngine(connection, namespace: namespace, timeLimit: timeLimit)
      return nil
    } catch {
      return error as? StorageError
    }
  }

  @Test(
    "Opening throws .unavailable if no server responds",
    arguments: [
      "host=127.0.0.1 port=1 user=nobody", "host=/nowhere user=nobody", "host=nowhere.invalid user=nobody",
      "host=127.0.0.1,localhost port=1,2 user=nobody", "postgresql://nobody:secret@127.0.0.1:1/db",
      // An address reserved for documentation: https://www.rfc-editor.org/rfc/rfc5737
      "host=192.0.2.1 user=nobody",
    ])
  func notThere(connection: String) async throws {
    let error = try #require(await error(connection, timeLimit: .seconds(1)))
    #expect(error.code == .unavailable, "\(error)")
    #expect(
      !error.description.contains("secret") && !error.description.contains { $0.isNewline || $0 == "\t" })
  }

  @Test(
    "A read-only server throws .readOnly, and .unavailable while another host is unreachable, in either order",
    arguments: [false, true])
  func awayAndReadOnly(isAwayFirst: Bool) async throws {
    try await PostgreSQLServer.shared.start()
    let present = PostgreSQLServer.shared.directory.path
    let hosts = isAwayFirst ? "/nowhere,\(present)" : "\(present),/nowhere"
    let parameters = "user=postgres dbname=postgres options='-c default_transaction_read_only=on'"
    let codes = [
      await error("host=\(present) \(parameters)")?.code, await error("host=\(hosts) \(parameters)")?.code,
    ]
    #expect(codes == [.readOnly, .unavailable])
  }

  @Test(
    "An invalid connection string is refused, and not included in the error",
    arguments: [
      "password=secret host", "postgresql://me:secret@[::1/db", "nonsense=secret",
      "host=a,b port=1,2,3 password=secret", "secret\0",
      // libpq would parse a part of the password as the host, the port or the database.
      "postgresql://me:a@secret@localhost/db", "postgresql://me:a/secret@localhost/db",
      "postgres://me:secret/a@localhost/db?sslmode=disable", "postgresql://me:a?b@secret@localhost/db",
      "postgresql://me:secret/db", "host=db;port=5432;user=me;password=secret",
      "host=db,user=me,password=secret",
      // libpq would parse this as the name of a database.
      "host=/nowhere dbname=postgresql://me:secret@localhost/db",
      "host=/nowhere dbname='host=localhost password=secret'",
      "host=/nowhere dbname='host=localhost password = secret'",
      "host=/nowhere dbname=POSTGRES://me:secret@localhost/db",
      "postgresql:///db?host=/nowhere&dbname=user%3Dme%20PASSWORD%20%3Dsecret",
      // libpq would parse these as the name of a host.
      "host=postgresql://me:secret@localhost/db", "host=me:secret@localhost",
      "postgresql:///db?host=me:secret@localhost", "host=localhost hostaddr=me:secret@localhost",
    ])
  func malformed(connection: String) async throws {
    let error = try #require(await error(connection))
    #expect(error.code == .unsupported)
    #expect(!error.description.contains("secret") && !String(reflecting: error).contains("secret"))
  }

  @Test(
    "A refusal by a pooler, which has one error code for all, has the code of its meaning",
    arguments: [
      ("no such user", StorageError.Code.permissionDenied),
      ("no such database: nowhere", StorageError.Code.unsupported),
      ("server login has been failing, try again later", StorageError.Code.unavailable),
    ])
  func poolerRefusal(message: String, code: StorageError.Code) async throws {
    let pooler = try RefusingServer(sqlState: "08P01", message: message)
    defer { pooler.close() }
    let error = await error("host=127.0.0.1 port=\(pooler.port) user=nobody sslmode=disable")
    #expect(error?.code == code, "\(String(describing: error))")
  }

  @Test(
    "A connection string in PGHOST or PGDATABASE is refused, and not included in the error", .ownThreads,
    arguments: [
      ["PGHOST", "postgresql://me:secret@localhost/db"],
      ["PGDATABASE", "host=localhost password = secret", "PGHOST", "/nowhere"],
    ])
  func malformedEnvironment(variables: [String]) async throws {
    // In a separate process, because the environment belongs to the whole process.
    await #expect(processExitsWith: .success) { [variables = variables as [String]] in
      for index in stride(from: 0, to: variables.count, by: 2) {
        setenv(variables[index], variables[index + 1], 1)
      }
      do {
        _ = try await PostgreSQLStorageEngine("user=nobody", timeLimit: .seconds(60))
        preconditionFailure("It was accepted.")
      } catch let error as StorageError {
        precondition(error.code == .unsupported && !String(reflecting: error).contains("secret"), "\(error)")
      }
    }
  }

  @Test("No description of an engine or its parts contains the password (rule N5)")
  func descriptions() async throws {
    try await PostgreSQLServer.shared.start()
    let connection = PostgreSQLServer.shared.connection + " password=the-secret"
    let engine = try await PostgreSQLStorageEngine(connection, namespace: newNamespace())
    let address = try PostgreSQLAddress(connection)
    var text = "\(engine) \(String(reflecting: engine)) \(address) \(String(reflecting: address))"
    dump(engine, to: &text)
    dump(address, to: &text)
    let place = EngineCatalog.Database(connection: connection, namespacePrefix: "test_")
    text += "\(place) \(String(reflecting: place))"
    dump(place, to: &text)
    #expect(text.contains("hosts") && !text.contains("the-secret"))
    try await engine.close()
  }

  @Test(
    "A name that cannot be the name of a schema is refused",
    // To a server, a combining accent is a character of its own.
    arguments: ["", "pg_mine", "pg_\u{301}", String(repeating: "n", count: 64), "a\0b"])
  func namespace(name: String) async throws {
    try await PostgreSQLServer.shared.start()
    #expect(await error(PostgreSQLServer.shared.connection, namespace: name)?.code == .unsupported)
  }

  @Test(
    "Every other name has a distinct schema",
    arguments: ["Ä \"quoted\" 'name'", "accents \"\u{301} and '\u{301}", "UPPER", "upper", "a.b; --"])
  func anyName(name: String) async throws {
    let engine = try await newEngine(name)
    try await engine.write(Data(name.utf8), key: key(1))
    #expect(try await newEngine(name).read(key: key(1)) == Data(name.utf8))
    try await engine.removeAllData()
  }

  @Test(
    "A name has the same schema whatever encoding and backslash settings a connection has",
    arguments: ["client_encoding=LATIN1", "options='-c standard_conforming_strings=off'"])
  func connectionSettings(parameters: String) async throws {
    try await PostgreSQLServer.shared.start()
    let name = "Ä\\t' \(UUID().uuidString)"
    let engine = try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection + " " + parameters, namespace: name, timeLimit: .seconds(300))
    try await engine.write(value(1), key: key(1))
    let other = try await newEngine(name)
    #expect(try await other.read(key: key(1)) == value(1))
    try await engine.close()
    try await other.close()
  }

  @Test("Functions in the schema public are not called in place of the server's own functions")
  func searchPath() async throws {
    let server = PostgreSQLServer.shared
    try await server.start()
    let name = "user_" + newNamespace().replacing("-", with: "_").lowercased()
    try await server.execute(
      """
      CREATE ROLE \(name) LOGIN; CREATE SCHEMA \(name) AUTHORIZATION \(name);
      CREATE SCHEMA \(name)_public; CREATE TABLE \(name)_public.called (what text);
      GRANT INSERT ON \(name)_public.called TO \(name); GRANT USAGE ON SCHEMA \(name)_public TO \(name);
      ALTER ROLE \(name) SET search_path = \(name)_public;
      CREATE FUNCTION \(name)_public.multiplied(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS
        'BEGIN INSERT INTO \(name)_public.called VALUES (''*''); RETURN 1; END';
      CREATE OPERATOR \(name)_public.* (FUNCTION = \(name)_public.multiplied, LEFTARG = numeric, RIGHTARG = integer);
      CREATE FUNCTION \(name)_public.convert_from(bytea, text) RETURNS text LANGUAGE plpgsql AS
        'BEGIN INSERT INTO \(name)_public.called VALUES (''convert_from''); RETURN pg_catalog.convert_from($1, $2::name); END';
      CREATE FUNCTION \(name)_public.unnest(bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS
        'BEGIN INSERT INTO \(name)_public.called VALUES (''unnest''); RETURN QUERY SELECT pg_catalog.unnest($1); END'
      """)
    for pooling in [false, true] {
      let engine = try await PostgreSQLStorageEngine(
        "host=\(server.directory.path) dbname=postgres user=\(name)", namespace: name,
        timeLimit: .seconds(300),
        isPooled: pooling)
      try await engine.write((0..<3).map { (key($0), value($0)) })
      try await engine.write(value(1), key: key(1))
      #expect(try await engine.read(keys: [key(1), key(2)]) == [value(1), value(2)])
      try await engine.withTransaction { try $0.write(value(4), key: key(4)) }
      #expect(try await engine.readAllEntries().count == 4)
      try await engine.close()
    }
    try await server.execute("DO $$ BEGIN ASSERT (SELECT count(*) FROM \(name)_public.called) = 0; END $$")
  }

  @Test(
    "A schema with another program's table is refused and left unchanged", arguments: ["entries", "invoices"])
  func anotherProgram(_ table: String) async throws {
    let server = PostgreSQLServer.shared
    try await server.start()
    let name = newNamespace().replacing("-", with: "_").lowercased()
    try await server.execute(
      "CREATE SCHEMA \(name); CREATE TABLE \(name).\(table) (mine text); INSERT INTO \(name).\(table) VALUES ('mine')"
    )
    let error = try #require(await error(server.connection, namespace: name))
    #expect(error.code == .unsupported && error.description.contains("another program"))
    try await server.execute(
      "DO $$ BEGIN ASSERT (SELECT count(*) FROM \(name).\(table) WHERE mine = 'mine') = 1; END $$")
  }

  @Test("A later format is refused")
  func laterFormat() async throws {
    let name = newNamespace().replacing("-", with: "_").lowercased()
    try await newEngine(name).close()
    try await PostgreSQLServer.shared.execute(
      "COMMENT ON TABLE \(name).entries IS 'Stockroom entries, format 2'")
    let error = try #require(await error(PostgreSQLServer.shared.connection, namespace: name))
    #expect(error.code == .unsupported && error.description.contains("later format"))
  }

  @Test("An unprivileged user can use a schema that the user owns")
  func ordinaryUser() async throws {
    let server = PostgreSQLServer.shared
    try await server.start()
    let name = "user_" + newNamespace().replacing("-", with: "_").lowercased()
    try await server.execute("CREATE ROLE \(name) LOGIN; CREATE SCHEMA \(name) AUTHORIZATION \(name)")
    let connection = "host=\(server.directory.path) dbname=postgres user=\(name)"
    let engine = try await PostgreSQLStorageEngine(connection, namespace: name)
    let changes = try await engine.changes()
    try await engine.write(value(1), key: key(1))
    try await engine.withTransaction { try $0.write(value(2), key: key(2)) }
    try await engine.removeAllData()
    #expect(try await engine.keyCount() == 0)
    _ = changes
    #expect(await error(connection, namespace: name + "_other")?.code == .permissionDenied)
  }

  @Test("Ten engines that open a new namespace concurrently share it")
  func race() async throws {
    let name = newNamespace()
    try await withThrowingTaskGroup { group in
      for number in 0..<10 {
        group.addTask { try await newEngine(name).write(value(number), key: key(number)) }
      }
      try await group.waitForAll()
    }
    #expect(try await newEngine(name).keyCount() == 10)
  }

  @Test("Without session state, all calls succeed, and there is no feed")
  func pooled() async throws {
    try await PostgreSQLServer.shared.start()
    let engine = try await PostgreSQLStorageEngine(
      PostgreSQLServer.shared.connection, namespace: newNamespace(), isPooled: true)
    try await engine.write((0..<100).map { (key($0), value($0)) })
    try await engine.apply([.remove(key: key(0)), .write(value(1), key: key(200))])
    #expect(try await engine.withTransaction { try $0.scan(.all, limit: 2).count } == 2)
    #expect(try await engine.readAllEntries().count == 100)
    #expect(try await engine.read(keys: [key(5), key(0), key(5)]) == [value(5), value(5)])
    #expect(!engine.capabilities.contains(.changeFeed))
    await #expect(throws: StorageError.self) { try await engine.changes() }
  }

  @Test("A time limit may exceed the server's maximum")
  func longTimeLimit() async throws {
    let engine = try await newEngine(newNamespace(), timeLimit: .seconds(100 * 86_400))
    try await engine.write(value(1), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(1))
    try await engine.close()
  }

  @Test("A read-only engine works for a role with read privileges only")
  func readOnlyRole() async throws {
    let namespace = newNamespace()
    let writer = try await newEngine(namespace)
    try await writer.write([(key(1), value(1)), (key(2), value(2))])
    let role = "reader_" + String(UUID().uuidString.lowercased().prefix(8))
    try await PostgreSQLServer.shared.execute(
      """
      CREATE ROLE \(role) LOGIN; ALTER ROLE \(role) SET default_transaction_read_only = on;
      GRANT USAGE ON SCHEMA "\(namespace)" TO \(role); GRANT SELECT ON "\(namespace)".entries TO \(role)
      """)
    let connection = PostgreSQLServer.shared.connection + " user=\(role)"
    #expect(await error(connection, namespace: namespace)?.code == .readOnly)
    let reader = try await PostgreSQLStorageEngine(
      connection, namespace: namespace, timeLimit: .seconds(300), access: .readOnly)
    #expect(try await reader.read(key: key(1)) == value(1))
    #expect(try await reader.allKeys().count == 2)
    #expect(try await reader.scan(.all, limit: nil).map(\.data) == [value(1), value(2)])
    #expect(try await reader.readEntries(keys: [key(2)]).map(\.data) == [value(2)])
    #expect(try await reader.keyCount() == 2)
    try await reader.verify()
    let refused = await #expect(throws: StorageError.self) { try await reader.write(value(3), key: key(3)) }
    #expect(refused?.code == .readOnly)
    try await reader.close()
    try await writer.close()
  }
}
