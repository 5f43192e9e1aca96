import Foundation
import StockroomCore
import StockroomSQLite
import Testing

/// Databases that are refused although a crashed process has left changes beside them (rule O2).
@Suite("SQLite: refused databases with a log or a journal") struct RefusedLogTests {
  private let place: TestPlace

  init() throws { place = try TestPlace() }

  /// Copies the database's files as a crash of the process would leave them.
  private func copyFiles(_ suffixes: [String]) throws -> TestPlace {
    let copy = try TestPlace()
    try FileManager.default.createDirectory(at: copy.url, withIntermediateDirectories: true)
    for suffix in suffixes {
      try FileManager.default.copyItem(atPath: place.database + suffix, toPath: copy.database + suffix)
    }
    return copy
  }

  @Test(
    "A database that is unusable only because of its log is refused and left unchanged",
    arguments: [
      "PRAGMA user_version = 99", "PRAGMA user_version = -1", "PRAGMA application_id = 1",
      "DROP TABLE entries", "DROP TABLE metadata",
    ], [StorageAccess.readWrite, .readOnly])
  func log(sql: String, access: StorageAccess) async throws {
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("x"), key: key(0))
    try await engine.close()
    let other = try RawConnection(place.database)
    try other.run(sql)
    let code: StorageError.Code = sql.hasPrefix("PRAGMA") ? .unsupported : .corrupted
    for suffixes in [["", "-wal"], ["", "-wal", "-shm"]] {
      let copy = try copyFiles(suffixes)
      // SQLite rebuilds the index from the log: https://sqlite.org/walformat.html#the_wal_index_file_format
      func contents() throws -> [String: Data] {
        try copy.contents().filter { suffixes.count == 2 || !$0.key.hasSuffix("-shm") }
      }
      let before = try contents()
      await expectError(code, naming: copy.database) {
        try SQLiteStorageEngine(directory: copy.directory, access: access)
      }
      #expect(try contents() == before)
    }
    withExtendedLifetime(other) {}
  }

  @Test("A database with a rollback journal and without one of the tables is refused and left unchanged")
  func rollbackMode() async throws {
    try await SQLiteStorageEngine(directory: place.directory).close()
    try RawConnection(place.database).run("PRAGMA journal_mode = DELETE; DROP TABLE metadata")
    let before = try place.contents()
    await expectError(.corrupted, naming: place.database) {
      try SQLiteStorageEngine(directory: place.directory)
    }
    #expect(try place.contents() == before)
  }

  @Test(
    "Another program's database is left unchanged, with the files that a crashed process has left beside it",
    arguments: ["-wal", "-journal"], [StorageAccess.readWrite, .readOnly])
  func foreign(suffix: String, access: StorageAccess) async throws {
    try FileManager.default.createDirectory(at: place.url, withIntermediateDirectories: true)
    let other = try RawConnection(place.database)
    try other.run("PRAGMA journal_mode = \(suffix == "-wal" ? "WAL" : "DELETE"); CREATE TABLE t (a)")
    // More than the page cache holds, so that the database file is changed before the commit.
    try other.run(
      """
      PRAGMA cache_size = 1; BEGIN;
      WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 200)
      INSERT INTO t SELECT randomblob(1000) FROM number
      """)
    let copy = try copyFiles(["", suffix])
    try other.run("ROLLBACK")
    let before = try copy.contents()
    try #require(before.count == 2)
    await expectError(.unsupported, naming: copy.database) {
      try SQLiteStorageEngine(directory: copy.directory, access: access)
    }
    #expect(try copy.contents() == before)
  }

  @Test(
    "Many engines can concurrently open a database that was copied with its log", .timeLimit(.minutes(60)))
  func copied() async throws {
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("x"), key: key(0))
    for _ in 0..<10 {
      let copy = try copyFiles(["", "-wal"])
      let engines = try await withThrowingTaskGroup(of: SQLiteStorageEngine.self) { group in
        for _ in 0..<8 { group.addTask { try SQLiteStorageEngine(directory: copy.directory) } }
        return try await group.reduce(into: []) { $0.append($1) }
      }
      for engine in engines { #expect(try await engine.read(key: key(0)) == data("x")) }
      for engine in engines { try await engine.close() }
    }
    try await engine.close()
  }
}
