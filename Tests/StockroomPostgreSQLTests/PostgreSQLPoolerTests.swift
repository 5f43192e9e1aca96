import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport
import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite(
  "PostgreSQL: behind a transaction pooler",
  .enabled(if: PostgreSQLServer.installedPrograms() != nil && Pooler.isInstalled))
struct PostgreSQLPoolerTests {
  private static let suite = ConformanceSuite(
    "PostgreSQL behind PgBouncer",
    capabilities: [
      .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess,
      .transactions,
      .networked,
    ],
    stallTimeout: .seconds(600), budget: .quick
  ) { directory in
    try await PostgreSQLStorageEngine(
      Pooler.shared.connection, namespace: EngineCatalog.Database.shared.namespace(for: directory),
      timeLimit: .seconds(300), isPooled: true)
  }

  /// The checks that would detect session state that one transaction leaves for the next.
  private static let checks = suite.checks.filter {
    [
      "write.is-seen-by-every-method", "reads.each-entry-once", "scan.pages", "concurrency.one-key",
      "transactions.no-write-skew", "cancellation.of-apply",
    ].contains($0.id)
  }

  @Test("The engine conforms to the contract there", arguments: checks)
  func conforms(_ check: ConformanceCheck) async throws {
    try await Pooler.shared.start()
    try await check.run()
  }

  @Test("A few server sessions serve many tasks of several engines")
  func sharesSessions() async throws {
    try await Pooler.shared.start()
    let namespace = newNamespace()
    let engines = try await (0..<8).concurrently { _ in
      try await PostgreSQLStorageEngine(
        Pooler.shared.connection, namespace: namespace, timeLimit: .seconds(300), isPooled: true)
    }
    _ = try await (0..<64).concurrently { number in
      for round in 0..<5 {
        try await engines[number % 8].withTransaction { transaction in
          let before =
            try transaction.read(key: key(0)).flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
          try transaction.write(Data("\(before + 1)".utf8), key: key(0))
          try transaction.write(value(round), key: key(number + 1))
        }
      }
    }
    #expect(try await engines[0].read(key: key(0)) == Data("320".utf8))
    #expect(try await engines[1].keyCount() == 65)
    for engine in engines { try await engine.close() }
  }

  @Test("A password refused by a pooler throws .permissionDenied, not .unavailable (rule N5)")
  func refusal() async throws {
    let pooler = Pooler(to: .shared, password: "the-password")
    try await pooler.start()
    @Sendable func use(_ options: String) async throws {
      let engine = try await PostgreSQLStorageEngine(
        "host=\(pooler.directory.path) port=6432 dbname=postgres \(options)", namespace: newNamespace(),
        timeLimit: .seconds(60), isPooled: true)
      try await engine.write(value(1), key: key(1))
      try await engine.close()
    }
    try await use("user=postgres password=the-password")
    for options in ["user=postgres password=not-the-password", "user=nobody password=not-the-password"] {
      let error = await #expect(throws: StorageError.self) { try await use(options) }
      #expect(error?.code == .permissionDenied, "\(String(describing: error))")
      #expect(error.map { !$0.description.contains("not-the-password") } ?? true)
    }
    try await pooler.stop()
  }

  @Test(
    "If a pooler's server has become a standby, an engine uses the primary, and reads nothing stale (rule N3)",
    arguments: ["read committed", "serializable"])
  func becomesStandby(isolation: String) async throws {
    let place = try TemporaryDirectory()
    let (first, second) = try await PostgreSQLServer.startPair(in: place.parent)
    let way = place.parent.appending(path: "way")
    try FileManager.default.createSymbolicLink(at: way, withDestinationURL: first.directory)
    try await first.execute(
      """
      CREATE ROLE pooled LOGIN SUPERUSER; ALTER ROLE pooled SET default_transaction_isolation = '\(isolation)'
      """)
    let pooler = Pooler(to: first, at: way, user: "pooled")
    try await pooler.start()
    let engine = try await PostgreSQLStorageEngine(
      "host=\(pooler.directory.path),\(first.directory.path) port=6432,5432 user=postgres dbname=postgres",
      timeLimit: .seconds(60), isPooled: true)
    try await engine.write(value(1), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(1))

    try FileManager.default.removeItem(at: way)
    try FileManager.default.createSymbolicLink(at: way, withDestinationURL: second.directory)
    try await first.execute(
      """
      SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
      """)
    try await second.execute("SELECT pg_wal_replay_pause()")
    try await second.wait(until: "pg_get_wal_replay_pause_state() = 'paused'")
    let other = try await PostgreSQLStorageEngine(first.connection, timeLimit: .seconds(60))
    try await other.write(value(2), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(2))
    try await engine.write(value(3), key: key(1))
    #expect(try await engine.withTransaction { try $0.read(key: key(1)) } == value(3))
    #expect(try await other.read(key: key(1)) == value(3))
    try await second.execute("SELECT pg_wal_replay_resume()")
    for engine in [engine, other] { try await engine.close() }
    try await pooler.stop()
    await second.stop(.immediate)
    await first.stop(.immediate)
  }

  @Test("A pooler whose first session was read-only is used once its server accepts writes (rule N3)")
  func becomesPrimary() async throws {
    let server = PostgreSQLServer.shared
    try await server.start()
    let role = "role_" + String(UUID().uuidString.lowercased().prefix(8))
    try await server.execute(
      "CREATE ROLE \(role) LOGIN SUPERUSER; ALTER ROLE \(role) SET default_transaction_read_only = on")
    let pooler = Pooler(to: server, user: role)
    try await pooler.start()
    let namespace = newNamespace()
    func open() async throws -> PostgreSQLStorageEngine {
      try await PostgreSQLStorageEngine(
        pooler.connection, namespace: namespace, timeLimit: .seconds(60), isPooled: true)
    }
    let error = await #expect(throws: StorageError.self) { _ = try await open() }
    #expect(error?.code == .readOnly, "\(String(describing: error))")
    try await server.execute(
      """
      ALTER ROLE \(role) RESET default_transaction_read_only;
      SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = '\(role)'
      """)
    let engine = try await open()
    try await engine.write(value(1), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(1))
    try await engine.close()
    try await pooler.stop()
  }
}

extension Range<Int> {
  /// The results of `body` for each number, in order, computed concurrently.
  fileprivate func concurrently<Result: Sendable>(
    _ body: @escaping @Sendable (Int) async throws -> Result
  ) async throws -> [Result] {
    try await withThrowingTaskGroup { group in
      for number in self { group.addTask { (number, try await body(number)) } }
      var results: [Int: Result] = [:]
      for try await (number, result) in group { results[number] = result }
      return compactMap { results[$0] }
    }
  }
}

/// PgBouncer in front of a server.
private actor Pooler {
  /// The pooler of the shared test server.
  static let shared = Pooler(to: .shared)

  private static let program = "/usr/sbin/pgbouncer"
  static var isInstalled: Bool { FileManager.default.isExecutableFile(atPath: program) }

  /// It ends when this process ends, which closes its standard input.
  private var running: Task<LineProcess, any Error>?
  /// The directory of its socket.
  let directory = FileManager.default.temporaryDirectory.appending(
    path: "stockroom-pooler-\(UUID().uuidString.prefix(8))")
  private let server: PostgreSQLServer
  private let way: URL
  private let user: String
  private let password: String?

  /// - Parameters:
  ///   - way: The directory through which it reaches the server. It may later belong to another server.
  ///   - user: The user that it connects to the server as, whatever user a client names.
  ///   - password: The password required from clients of the user postgres; nil to require none.
  init(
    to server: PostgreSQLServer, at way: URL? = nil, user: String = "postgres", password: String? = nil
  ) {
    (self.server, self.way, self.user) = (server, way ?? server.directory, user)
    self.password = password
  }

  nonisolated var connection: String { "host=\(directory.path) port=6432 user=postgres dbname=postgres" }

  func start() async throws {
    let task = running ?? Task { try await launch() }
    running = task
    _ = try await task.value
  }

  func stop() async throws {
    let process = try await running?.value
    process?.closeInput()
    await process?.waitUntilEnd()
  }

  private func launch() async throws -> LineProcess {
    try await server.start()
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    try PostgreSQLServer.giveToUser(directory)
    let settings = directory.appending(path: "pgbouncer.ini")
    var access = "auth_type = any"
    if let password {
      let users = directory.appending(path: "users.txt")
      try Data("\"postgres\" \"\(password)\"\n".utf8).write(to: users)
      access = "auth_type = md5\nauth_file = \(users.path)"
    }
    try Data(
      """
      [databases]
      postgres = host=\(way.path) port=5432 user=\(user)
      [pgbouncer]
      listen_addr =
      listen_port = 6432
      unix_socket_dir = \(directory.path)
      \(access)
      pool_mode = transaction
      default_pool_size = 4
      max_client_conn = 500
      """.utf8
    ).write(to: settings)
    // The shell stops the pooler when its own standard input ends, which happens when this process ends.
    let script = """
      exec 3<&0
      "$@" 2>&1 & pooler=$!
      (while read -r line; do :; done; kill -KILL $pooler; rm -rf '\(directory.path)') <&3 & watcher=$!
      wait $pooler
      kill $watcher
      """
    let process = try LineProcess(
      PostgreSQLServer.asUser(["/bin/sh", "-c", script, "sh", Self.program, settings.path]))
    var lines: [String] = []
    while let line = await process.nextLine().map({ String(decoding: $0, as: UTF8.self) }) {
      lines.append(line)
      if line.contains("process up") {
        Task { while await process.nextLine() != nil {} }
        return process
      }
    }
    throw StorageError(.io, "PgBouncer has not started: \(lines.suffix(8).joined(separator: " "))")
  }
}
