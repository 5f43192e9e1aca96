import Foundation
import StockroomEngines
import StockroomPostgreSQL
import Testing

@Suite("The command with a database of somebody's", .enabled(if: PostgreSQLServer.installedPrograms() != nil))
struct PostgreSQLOptionTests {
  /// Fails if a namespace of a command is left, which has a number in its name.
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
      ["conformance", "--check", "keys.case", "--jobs", "2"],
      ["bench", "--entries", "10", "--repetitions", "1", "--workload", "write-one"],
    ])
  func usesDatabase(_ arguments: [String]) async throws {
    // A server without any other tests.
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
    // Apple's systems have the temporary directory elsewhere, whatever TMPDIR is.
    @Test(
      "A server that the command has started for itself ends after it, and leaves nothing",
      .timeLimit(.minutes(10)))
    func ownServer() async throws {
      // A short path, since there will be a socket.
      let directory = FileManager.default.temporaryDirectory.appending(
        path: "own-\(UUID().uuidString.prefix(8))")
      // As the system's own, since the server may have another user.
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: false)
      try FileManager.default.setAttributes([.posixPermissions: 0o1777], ofItemAtPath: directory.path)
      defer { try? FileManager.default.removeItem(at: directory) }
      let output = try await CommandLineTool.run(
        ["conformance", "--engine", "postgresql", "--check", "keys.case"],
        by: "TMPDIR='\(directory.path)' exec \"$@\"")
      #expect(output.status == 0, "\(output.standardOutput)\(output.standardError)")
      // It notices a moment later that nobody needs it any more.
      while try !contents(of: directory).isEmpty { await Task.yield() }
    }
  #endif

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
