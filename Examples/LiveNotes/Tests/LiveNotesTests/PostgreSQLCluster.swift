import Foundation

/// A PostgreSQL server for one test, on a Unix socket. Stopped when this is released.
final class PostgreSQLCluster: Sendable {
  private let directory: TemporaryDirectory
  private static let programs: String? = {
    let root = "/usr/lib/postgresql"
    let versions = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
    return versions.sorted().map { "\(root)/\($0)/bin" }.last {
      FileManager.default.isExecutableFile(atPath: "\($0)/initdb")
    }
  }()

  static var isInstalled: Bool { programs != nil }

  var connection: String { "host=\(directory.path) user=postgres dbname=postgres" }

  static func start() async throws -> PostgreSQLCluster {
    try await onDedicatedThread { try PostgreSQLCluster() }
  }

  private init() throws {
    directory = try TemporaryDirectory()
    // The server refuses to run as root.
    if geteuid() == 0 { try run("/bin/chown", ["postgres", directory.path], asPostgres: false) }
    let data = directory.path + "/data"
    try run("initdb", ["-D", data, "-A", "trust", "-U", "postgres", "--no-sync"])
    try run(
      "pg_ctl",
      [
        "-D", data, "-w", "-t", "300", "-l", directory.path + "/log",
        "-o", "-c listen_addresses= -c unix_socket_directories=\(directory.path)", "start",
      ])
  }

  deinit { try? run("pg_ctl", ["-D", directory.path + "/data", "-m", "immediate", "-w", "stop"]) }

  struct Failed: Error {
    let program: String
  }

  private func run(_ program: String, _ arguments: [String], asPostgres: Bool = true) throws {
    let path = program.hasPrefix("/") ? program : "\(Self.programs ?? "")/\(program)"
    let silent = open("/dev/null", O_RDWR | O_CLOEXEC)
    defer { close(silent) }
    let child =
      asPostgres && geteuid() == 0
      ? try ChildProcess(
        "/sbin/runuser", ["-u", "postgres", "--", path] + arguments,
        descriptors: [0: silent, 1: silent, 2: silent])
      : try ChildProcess(path, arguments, descriptors: [0: silent, 1: silent, 2: silent])
    if child.wait() != 0 { throw Failed(program: program) }
  }
}
