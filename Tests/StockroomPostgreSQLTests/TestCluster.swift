import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL

/// A server with a synchronous standby, for tests that kill it.
actor TestCluster {
  private static let place = FileManager.default.temporaryDirectory.appending(
    path: "stockroom-cluster-\(UUID().uuidString.prefix(8))")

  /// Without syncs, because no test of the cluster simulates a power loss.
  private static let settings = PostgreSQLServer.clusterSettings + ["fsync=off"]

  /// The initial primary.
  static let first = PostgreSQLServer(
    directory: place.appendingPathExtension("1"), settings: settings,
    accessRules: ["local all secured scram-sha-256"], isTemporary: true)
  private static let second = PostgreSQLServer(
    directory: place.appendingPathExtension("2"), settings: settings, standbyOf: first, isTemporary: true)

  static let shared = TestCluster()

  private var hasStandby = false
  private var hasFailedOver = false
  private var primary: PostgreSQLServer { hasFailedOver ? Self.second : Self.first }

  /// Starts the servers that are not running.
  func start() async throws {
    try await primary.start()
    guard !hasStandby else { return }
    hasStandby = true
    try await primary.execute(
      "CREATE ROLE secured LOGIN PASSWORD 'the-password'; CREATE ROLE stranger LOGIN")
    try await primary.waitForStandby(Self.second)
  }

  /// Kills the primary.
  func kill() async { await primary.stop(.immediate) }

  /// Kills the primary and promotes the standby. Returns the standby's socket.
  func failOver() async throws -> String {
    await primary.stop(.immediate)
    try FileManager.default.removeItem(at: Self.first.directory)
    try await Self.second.execute("SELECT pg_promote()")
    hasFailedOver = true
    return Self.second.socket
  }
}

extension PostgreSQLServer {
  /// Lets a standby reconnect soon after its primary has started.
  static let clusterSettings = ["wal_retrieve_retry_interval=100ms", "shared_buffers=16MB"]

  /// Starts a standby. From then on a commit is acknowledged only once the standby has it.
  func waitForStandby(_ standby: PostgreSQLServer) async throws {
    try await standby.start()
    try await execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    try await execute("SELECT pg_reload_conf()")
  }
}

extension ConformanceServer {
  /// The cluster, reached by engines with a short time limit.
  static let postgreSQL = ConformanceServer(
    address: .unixSocket(TestCluster.first.socket), timeLimit: .seconds(3), maximumConnections: 5,
    secret: "not-asked-for",
    refusals: [
      Refusal("a wrong password", secret: "not-the-password") {
        try await engine($0, $1, "user=secured password=not-the-password")
      },
      Refusal("no password") { try await engine($0, $1, "user=secured") },
      Refusal("no right to make anything") { try await engine($0, $1, "user=stranger") },
      Refusal("a database that does not exist", code: .unsupported) {
        try await engine($0, $1, "user=postgres dbname=nowhere")
      },
    ],
    start: { try await TestCluster.shared.start() }, kill: { await TestCluster.shared.kill() },
    failOver: { .unixSocket(try await TestCluster.shared.failOver()) }
  ) { directory, port in
    try await engine(directory, port, "user=postgres password=not-asked-for")
  }

  private static func engine(_ directory: URL, _ port: UInt16, _ user: String) async throws
    -> PostgreSQLStorageEngine
  {
    try await PostgreSQLStorageEngine(
      "host=127.0.0.1 port=\(port) dbname=postgres sslmode=disable \(user)",
      namespace: "network_" + CacheKey(directory.path).value, maximumConnections: 5, timeLimit: .seconds(3))
  }
}
