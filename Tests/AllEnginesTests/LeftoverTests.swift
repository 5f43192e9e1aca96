import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// The leftovers of a process that was killed while it created a file.
@Suite struct LeftoverTests {
  /// A file that an engine creates, and what the unfinished directory next to it contains.
  struct Leftover: Sendable, CustomTestStringConvertible {
    let engine: String
    let file: String
    let names: [String]
    var testDescription: String { file }
  }

  static let databases = [
    Leftover(engine: "sqlite", file: "data.sqlite3", names: ["database", "database-journal"]),
    Leftover(engine: "lmdb", file: "data.mdb", names: ["data.mdb"]),
  ]
  static let logs = [
    Leftover(engine: "sqlite", file: "data.sqlite3-changes", names: ["log"]),
    Leftover(engine: "lmdb", file: "changes.log", names: ["log"]),
    Leftover(engine: "files", file: ".stockroom/changes", names: ["log"]),
  ]

  private func open(_ leftover: Leftover, in place: TemporaryDirectory) async throws -> any StorageEngine {
    try await EngineCatalog.select([leftover.engine])[0].open(place.url, .process)
  }

  /// Creates the directory, whose files are new or hard links to `file`.
  private func make(
    _ leftover: Leftover, in place: TemporaryDirectory, linkedTo file: String? = nil
  ) throws -> URL {
    let directory = place.appending("\(leftover.file)-new-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    for name in leftover.names + ["lock"] {
      let url = directory.appending(path: name)
      if let file, name != "lock" {
        try FileManager.default.linkItem(at: place.appending(file), to: url)
      } else {
        try Data("unfinished".utf8).write(to: url)
      }
    }
    return directory
  }

  @Test("A database that was never completed is removed by the next opening", arguments: databases)
  func neverNamed(_ leftover: Leftover) async throws {
    let place = try TemporaryDirectory()
    let directory = try make(leftover, in: place)
    let engine = try await open(leftover, in: place)
    #expect(!FileManager.default.fileExists(atPath: directory.path))
    try await engine.write(Data("x".utf8), key: CacheKey(verbatim: "x"))
    #expect(try await engine.keyCount() == 1)
    try await engine.close()
  }

  @Test("The name under which a database was made is removed by the next opening", arguments: databases)
  func namedTwice(_ leftover: Leftover) async throws {
    let place = try TemporaryDirectory()
    var engine = try await open(leftover, in: place)
    try await engine.write(Data("x".utf8), key: CacheKey(verbatim: "x"))
    try await engine.close()
    let directory = try make(leftover, in: place, linkedTo: leftover.file)
    engine = try await open(leftover, in: place)
    #expect(!FileManager.default.fileExists(atPath: directory.path))
    #expect(try await engine.keyCount() == 1)
    try await engine.close()
  }

  @Test("A log of changes that was never completed is removed by the next subscription", arguments: logs)
  func log(_ leftover: Leftover) async throws {
    let place = try TemporaryDirectory()
    let engine = try await open(leftover, in: place)
    let directory = try make(leftover, in: place)
    let changes = try await engine.changes()
    #expect(!FileManager.default.fileExists(atPath: directory.path))
    withExtendedLifetime(changes) {}
    try await engine.close()
  }
}
