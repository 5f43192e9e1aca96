import Foundation
import StockroomEngines
import StockroomKitSupport
import StockroomPostgreSQL
import Testing

@Suite("The command with a database of somebody's", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLOptionTests {
  /// Fails if a namespace of a command remains, whose name contains a number.
  private static let lookForNamespaces = """
    DO $$ BEGIN
      IF EXISTS (SELECT FROM pg_namespace WHERE nspname ~ '^stockroom_[0-9]+_') THEN
        RAISE EXCEPTION 'a namespace is left';
      END IF;
    END $$
    """

  @Test(
    "Checks and benchmarks use the database, and leave nothing there",
    arguments: [
      ["conformance", "--check", "keys.case"],
      ["conformance", "--check", "keys.case", "--jobs", "2", "--engine", "memory"],
      ["bench", "--entries", "10", "--repetitions", "1", "--workload", "write-one"],
    ])
  func usesDatabase(_ arguments: [String]) async throws {
    // A server that no other test uses.
    try await withTemporaryDirectory { directory in
      let server = PostgreSQLServer(directory: directory.appending(path: "s"))
      try await server.start()
      let output = try await CommandLineTool.run(
        arguments + ["--engine", "postgresql", "--postgresql", server.connection])
      #expect(output.status == 0, "\(output.standardOutput)\(output.standardError)")
      #expect(output.standardOutput.contains("PostgreSQL"))
      try await server.execute(Self.lookForNamespaces)
      await server.stop()
    }
  }

  #if os(Linux)
    // On Apple's systems TMPDIR does not change the temporary directory.
    @Test(
      "A server that the command has started for itself ends after it, and leaves nothing",
      .timeLimit(.minutes(60)))
    func ownServer() async throws {
      try await withSharedDirectory { directory in
        let output = try await CommandLineTool.run(
          ["conformance", "--engine", "postgresql", "--check", "keys.case"],
          by: "TMPDIR='\(directory.path)' exec \"$@\"")
        #expect(output.status == 0, "\(output.standardOutput)\(output.standardError)")
        // The server ends shortly after the command.
        try await wait { try contents(of: directory).isEmpty }
      }
    }

    @Test(
      "A command that is killed while it makes the data of its server leaves neither a server nor data",
      .timeLimit(.minutes(60)))
    func killedWhileStarting() async throws {
      try await withSharedDirectory { directory in
        func servers() throws -> [String] {
          try contents(of: directory).filter { $0.hasPrefix("stockroom-server-") }
        }
        func hasData(_ server: String) -> Bool {
          FileManager.default.fileExists(atPath: "\(directory.path)/\(server)/data")
        }
        let process = try LineProcess([
          "/usr/bin/env", "TMPDIR=\(directory.path)", CommandLineTool.url.path, "conformance", "--engine",
          "postgresql", "--check", "keys.case",
        ])
        try await wait { try servers().contains(where: hasData) }
        #expect(kill(process.identifier, SIGKILL) == 0)
        #expect(await process.waitUntilEnd() == .killed(signal: SIGKILL))
        try await wait { try servers().isEmpty }
      }
    }

    /// Calls `body` with a new directory that every user may write to, since the server may have another user.
    private func withSharedDirectory(_ body: (URL) async throws -> Void) async throws {
      // A short path, because the length of a socket's path is limited.
      let directory = FileManager.default.temporaryDirectory.appending(
        path: "own-\(UUID().uuidString.prefix(8))")
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: false)
      try FileManager.default.setAttributes([.posixPermissions: 0o1777], ofItemAtPath: directory.path)
      defer { try? FileManager.default.removeItem(at: directory) }
      try await body(directory)
    }
  #endif

  /// So many repetitions take hours.
  private static let longBenchmark = [
    "bench", "--engine", "postgresql", "--entries", "10", "--repetitions", "1000", "--workload", "write-one",
  ]

  @Test(
    "A server of the command has its data below the directory, and leaves nothing there",
    .timeLimit(.minutes(60)))
  func dataInDirectory() async throws {
    try await withTemporaryDirectory { directory in
      func isMeasuring() throws -> Bool {
        guard let scratch = try contents(of: directory).first else { return false }
        let names = try contents(of: directory.appending(path: scratch))
        let hasData = names.contains { name in
          name.hasPrefix("stockroom-server-")
            && FileManager.default.fileExists(atPath: "\(directory.path)/\(scratch)/\(name)/data")
        }
        return hasData && names.contains { $0.hasPrefix("stockroom-bench-") }
      }
      let process = try LineProcess(
        [CommandLineTool.url.path] + Self.longBenchmark + ["--directory", directory.path])
      try await wait { try isMeasuring() }
      #expect(kill(process.identifier, SIGINT) == 0)
      #expect(await process.waitUntilEnd() == .exited(status: 128 + SIGINT))
      try await wait { try contents(of: directory).isEmpty }
    }
  }

  @Test(
    "A benchmark that is interrupted leaves nothing in the database, however long the removal takes",
    .timeLimit(.minutes(60)))
  func interrupted() async throws {
    try await withTemporaryDirectory { directory in
      let server = PostgreSQLServer(directory: directory.appending(path: "s"))
      try await server.start()
      let process = try LineProcess(
        ["/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", CommandLineTool.url.path] + Self.longBenchmark
          + ["--postgresql", server.connection])
      // An additional table, since the command creates and removes its own.
      try await wait { await succeeds(server, Self.makeTable) }
      // A transaction that has locked a table blocks its removal.
      let programs = try #require(PostgreSQLServer.installedPrograms())
      let reader = try LineProcess(
        PostgreSQLServer.asUser([
          programs.appending(path: "psql").path, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1",
          "--dbname=\(server.connection)",
        ]))
      reader.send("BEGIN;\n\(Self.lockTable)\n\\echo It is locked.")
      try await waitForLine(of: reader, with: "It is locked.")

      #expect(kill(process.identifier, SIGINT) == 0)
      try await waitForLine(of: process, with: "cleaning up")
      reader.closeInput()
      #expect(await process.waitUntilEnd() == .exited(status: 128 + SIGINT))
      try await server.execute(Self.lookForNamespaces)
      await reader.waitUntilEnd()
      await server.stop()
    }
  }

  /// Creates a table in a schema whose name begins like those of the command. Fails while the command has none.
  private static let makeTable = """
    DO $$ DECLARE name text; BEGIN
      SELECT substring(nspname FROM '^stockroom_[0-9]+_') || 'read' INTO STRICT name
      FROM pg_namespace WHERE nspname ~ '^stockroom_[0-9]+_' LIMIT 1;
      EXECUTE format('CREATE SCHEMA %1$I CREATE TABLE is_read ()', name);
    END $$
    """

  private static let lockTable = """
    DO $$ BEGIN
      EXECUTE (
        SELECT format('LOCK TABLE %s IN ACCESS SHARE MODE', oid::regclass) FROM pg_class WHERE relname = 'is_read'
      );
    END $$;
    """

  /// Waits until the process has written such a line, and fails if it ends without one.
  private func waitForLine(of process: LineProcess, with text: String) async throws {
    while true {
      let line = try #require(
        await process.nextLine(), "\(process.command.last ?? "") ended: \(process.stderrTail)")
      if String(decoding: line, as: UTF8.self).contains(text) { return }
    }
  }

  private func succeeds(_ server: PostgreSQLServer, _ statement: String) async -> Bool {
    do {
      try await server.execute(statement)
      return true
    } catch {
      return false
    }
  }

  private func wait(until isTrue: () async throws -> Bool) async throws {
    while try await !isTrue() {
      try Task.checkCancellation()
      await Task.yield()
    }
  }

  @Test("The page of a benchmark has the command without the password of the database")
  func pageWithoutPassword() async throws {
    try await withTemporaryDirectory { directory in
      let server = PostgreSQLServer(directory: directory.appending(path: "s"))
      try await server.start()
      let page = directory.appending(path: "page.md")
      let output = try await CommandLineTool.run(
        "bench", "--engine", "sqlite", "--engine", "postgresql", "--entries", "50", "--repetitions", "2",
        "--workload", "read-one", "--workload", "write-one", "--durability", "process",
        "--write-results", page.path, "--postgresql", "\(server.connection) password = 'the secret'")
      #expect(output.status == 0, "\(output.standardError)")
      let text = try String(contentsOf: page, encoding: .utf8)
      #expect(text.contains("password = ***"))
      #expect(!text.contains("secret"))
      await server.stop()
    }
  }

  @Test("A database that cannot be reached is an error of one line")
  func reportsWrongDatabase() async throws {
    for command in ["bench", "conformance", "compare"] {
      let output = try await CommandLineTool.run(
        command, "--engine", "postgresql", "--postgresql", "host=/nowhere user=nobody")
      #expect(output.status == 1)
      #expect(output.errorLines.count == 1)
      #expect(output.standardError.contains("/nowhere"))
    }
  }

  @Test("Which checks there are does not depend on a server")
  func listsChecksWithoutServer() async throws {
    let output = try await CommandLineTool.run("conformance", "--list", "--rule", "N1")
    #expect(output.status == 0)
    #expect(output.standardOutput.contains("network."))
  }
}
