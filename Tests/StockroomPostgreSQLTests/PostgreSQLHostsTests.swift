import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite(
  "PostgreSQL: several hosts", .timeLimit(.minutes(60)),
  .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLHostsTests {
  @Test("Of several hosts, an engine uses the one that accepts writes and has its namespace", .ownThreads)
  func hostsOfEnvironment() async throws {
    let place = try TemporaryDirectory()
    let first = PostgreSQLServer(
      directory: place.parent.appending(path: "1"),
      settings: PostgreSQLServer.clusterSettings + ["default_transaction_read_only=on"])
    try await first.start()
    try await PostgreSQLServer.shared.start()
    let hosts = "\(first.directory.path),\(PostgreSQLServer.shared.directory.path)"
    let services = place.parent.appending(path: "services")
    try Data("[shop]\nhost=\(hosts)\nuser=postgres\ndbname=postgres\n".utf8).write(to: services)
    // In a separate process, because the environment belongs to the whole process.
    await #expect(processExitsWith: .success) { [hosts = hosts as String, file = services.path as String] in
      let namespace = newNamespace()
      setenv("PGSERVICEFILE", file, 1)
      let served = try await PostgreSQLStorageEngine(
        "service=shop", namespace: namespace, timeLimit: .seconds(60))
      try await served.write(value(1), key: key(1))
      try await served.close()
      // Would make libpq prefer a standby, as other programs may need.
      setenv("PGTARGETSESSIONATTRS", "standby", 1)
      setenv("PGHOST", hosts, 1)
      let engine = try await PostgreSQLStorageEngine(
        "user=postgres dbname=postgres", namespace: namespace, timeLimit: .seconds(60))
      let found = try await engine.read(key: key(1))
      precondition(found == value(1))
      try await engine.write(value(2), key: key(2))
      try await engine.close()
    }
    try await expectWaiting(besides: first, in: place.parent)
    try await expectMoving(from: first)
    try await expectMoving(from: first, behind: place.parent.appending(path: "name"))
    await first.stop(.fast)
  }

  /// Expects that a read-only engine waits for its server while a server without the namespace answers.
  private func expectWaiting(besides other: PostgreSQLServer, in directory: URL) async throws {
    let name = newNamespace()
    let writer = try await newEngine(name)
    try await writer.write(value(1), key: key(1))
    let way = directory.appending(path: "way")
    let target = PostgreSQLServer.shared.directory
    try FileManager.default.createSymbolicLink(at: way, withDestinationURL: target)
    let reader = try await PostgreSQLStorageEngine(
      "host=\(way.path),\(other.directory.path) user=postgres dbname=postgres application_name=\(name)",
      namespace: name, timeLimit: .seconds(300), access: .readOnly)
    try FileManager.default.removeItem(at: way)
    let read = Task { try await reader.read(key: key(1)) }
    try await other.wait(
      until: "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = '\(name)')")
    try FileManager.default.createSymbolicLink(at: way, withDestinationURL: target)
    #expect(try await read.value == value(1))
    for engine in [reader, writer] { try await engine.close() }
  }

  /// Expects that an engine whose server accepts no more writes reads nothing from it any more, although it still
  /// responds, and that its feed moves too.
  ///
  /// - Parameter link: A link to the server in use, which is the engine's only host, like a name whose address
  ///   changes; nil if both servers are hosts of the engine.
  private func expectMoving(from former: PostgreSQLServer, behind link: URL? = nil) async throws {
    let name = newNamespace()
    let server = PostgreSQLServer.shared
    func setReadOnly(_ isOn: Bool, _ statement: String = "") async throws {
      try await former.execute(
        """
        BEGIN READ WRITE; ALTER ROLE postgres SET default_transaction_read_only = \(isOn); \(statement); COMMIT
        """)
    }
    try await setReadOnly(false)
    if let link {
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: former.directory)
    }
    let engine = try await PostgreSQLStorageEngine(
      "host=\(link?.path ?? "\(former.directory.path),\(server.directory.path)") user=postgres dbname=postgres "
        + "application_name=\(name)", namespace: name, timeLimit: .seconds(300))
    try await engine.write(value(1), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(1))
    var changes = try await engine.changes().makeAsyncIterator()
    let successor = try await newEngine(name)
    try await successor.write(value(2), key: key(1))
    if let link {
      try FileManager.default.removeItem(at: link)
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: server.directory)
    }
    // Ends the session that writes. Those that read and listen remain.
    try await setReadOnly(
      true,
      """
      SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
      WHERE application_name = '\(name)' AND query LIKE '%.commits%'
      """)
    try await engine.write(value(3), key: key(2))
    let found = try await engine.read(key: key(1))
    try #require(found == value(2))
    while let change = await changes.next(), change != .everything {}
    for engine in [engine, successor] { try await engine.close() }
  }
}
