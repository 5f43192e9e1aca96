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
