import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL
import TestFixtures
import Testing

@Suite("Golden files", .enabled(if: PostgreSQLServer.installedPrograms() != nil), .serialized)
struct GoldenFileTests {
  private static let namespace = "golden"

  @Test(
    "A namespace written by version 0.1.0 is read completely, with timestamps and order, and accepts writes"
  )
  func reading() async throws {
    let server = PostgreSQLServer.shared
    let golden = try GoldenPlace(in: .module)
    try await server.start()
    try await server.execute("DROP SCHEMA IF EXISTS \(Self.namespace) CASCADE")
    try await server.execute(try String(contentsOf: golden.directory.appending("dump.sql"), encoding: .utf8))

    let engine = try await newEngine(Self.namespace)
    #expect(try await GoldenPlace.entries(of: engine) == golden.entries)
    #expect(golden.entries.count == 5)
    try await engine.write(value(1), key: key(1))
    #expect(try await GoldenPlace.entries(of: engine).dropLast() == golden.entries[...])
    #expect(try await engine.readAllEntries().last?.key == key(1))
    try await engine.close()
  }

  @Test("The tables of a new namespace are the same as those of version 0.1.0")
  func tables() async throws {
    let golden = try GoldenPlace(in: .module)
    let written = try String(contentsOf: golden.directory.appending("dump.sql"), encoding: .utf8)
    let namespace = newNamespace().lowercased().replacing("-", with: "_")
    try await newEngine(namespace).close()
    let made = try await dump(namespace, ["--schema-only"]).replacing(namespace, with: Self.namespace)
    func definitions(_ dump: String) -> [Substring] {
      dump.split(separator: "\n").filter { !$0.hasPrefix("--") && !$0.hasPrefix("INSERT ") }
        .filter { !$0.hasPrefix("SELECT pg_catalog.setval(") }
    }
    #expect(definitions(made) == definitions(written))
  }

  /// The SQL that recreates the namespace.
  private func dump(_ namespace: String, _ options: [String]) async throws -> String {
    let server = PostgreSQLServer.shared
    let file = server.directory.appending(path: "\(namespace).sql")
    try await server.run(
      [
        "pg_dump", "--schema=\(namespace)", "--no-owner", "--host=\(server.directory.path)",
        "--username=postgres",
        "--file=\(file.path)", "postgres",
      ] + options)
    // Newer versions of the program add commands that are not SQL.
    return try String(contentsOf: file, encoding: .utf8).split(
      separator: "\n", omittingEmptySubsequences: false
    ).filter { !$0.hasPrefix("\\") }.joined(separator: "\n")
  }

  @Test("Writes the golden files", .enabled(if: GoldenPlace.isWriting))
  func writing() async throws {
    let scratch = try TemporaryDirectory()
    try await PostgreSQLServer.shared.start()
    try await PostgreSQLServer.shared.execute("DROP SCHEMA IF EXISTS \(Self.namespace) CASCADE")
    try await GoldenPlace.write(beside: #filePath, in: scratch.url) { _ in
      try await newEngine(Self.namespace)
    } finish: {
      try Data(try await dump(Self.namespace, ["--inserts"]).utf8).write(to: scratch.appending("dump.sql"))
    }
  }
}
