import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport
import StockroomPostgreSQL
import Testing

@Suite(
  "PostgreSQL: behind a pooler of transactions",
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
      Pooler.shared.connection, namespace: EngineCatalogue.Database.shared.namespace(for: directory),
      timeLimit: .seconds(300), isPooled: true)
  }

  /// Those in which something would be seen that one transaction has left in its session for the next.
  private static let checks = suite.checks.filter {
    [
      "write.is-seen-by-every-method", "reads.each-entry-once", "scan.pages", "concurrency.one-key",
      "transactions.no-write-skew", "cancellation.of-apply",
    ].contains($0.id)
  }

  @Test("The engine keeps the contract there", arguments: checks)
  func conforms(_ check: ConformanceCheck) async throws {
    try await Pooler.shared.start()
    try await check.run()
  }

  @Test("Few sessions of the server serve many tasks of several engines")
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
}

extension Range<Int> {
  /// What `body` makes of each number, in order, all at the same time.
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

/// PgBouncer in front of the server that most tests share.
private actor Pooler {
  static let shared = Pooler()

  private static let program = "/usr/sbin/pgbouncer"
  static var isInstalled: Bool { FileManager.default.isExecutableFile(atPath: program) }

  /// It ends with this process, which then closes its standard input.
  private var running: Task<LineProcess, any Error>?
  private static let directory = FileManager.default.temporaryDirectory.appending(
    path: "stockroom-pooler-\(UUID().uuidString.prefix(8))")

  nonisolated var connection: String { "host=\(Self.directory.path) port=6432 user=postgres dbname=postgres" }

  func start() async throws {
    let task = running ?? Task { try await Self.launch() }
    running = task
    _ = try await task.value
  }

  private static func launch() async throws -> LineProcess {
    try await PostgreSQLServer.shared.start()
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    try PostgreSQLServer.giveToUser(directory)
    let settings = directory.appending(path: "pgbouncer.ini")
    try Data(
      """
      [databases]
      postgres = host=\(PostgreSQLServer.shared.directory.path) port=5432 user=postgres
      [pgbouncer]
      listen_addr =
      listen_port = 6432
      unix_socket_dir = \(directory.path)
      auth_type = any
      pool_mode = transaction
      default_pool_size = 4
      max_client_conn = 500
      """.utf8
    ).write(to: settings)
    // The shell ends the pooler when its own input ends, as it does with this process.
    let script = """
      exec 3<&0
      "$@" 2>&1 & pooler=$!
      (while read -r line; do :; done; kill -KILL $pooler; rm -rf '\(directory.path)') <&3 & watcher=$!
      wait $pooler
      kill $watcher
      """
    let process = try LineProcess(
      PostgreSQLServer.asUser(["/bin/sh", "-c", script, "sh", program, settings.path]))
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
