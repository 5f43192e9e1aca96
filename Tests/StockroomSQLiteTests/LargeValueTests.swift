import StockroomCSQLite
import Foundation
import StockroomCore
import StockroomKitSupport
import StockroomSQLite
import Testing

/// Values above a size limit are stored in a separate table, which does not affect the results of calls.
@Suite struct LargeValueTests {
  let directory = FileManager.Directory.temporary(appendingPath: "stockroom-sqlite-\(UUID().uuidString)")
  let key = CacheKey(verbatim: "key")

  /// Calls `body` with an engine, then removes the directory.
  func withEngine(_ body: (SQLiteStorageEngine) async throws -> Void) async throws {
    defer { try? FileManager.default.removeItem(at: directory.url) }
    let engine = try SQLiteStorageEngine(directory: directory)
    try await body(engine)
    try await engine.close()
  }

  /// Runs SQL on the database like another program. Returns the first column of the first row, if any.
  @discardableResult
  func run(_ sql: String) throws -> Int64? {
    var handle: OpaquePointer?
    var statement: OpaquePointer?
    let path = directory.url.appending(path: "data.sqlite3").path(percentEncoded: false)
    try #require(sqlite3_open(path, &handle) == SQLITE_OK)
    defer { sqlite3_close_v2(handle) }
    try #require(sqlite3_prepare_v2(handle, sql, -1, &statement, nil) == SQLITE_OK)
    defer { sqlite3_finalize(statement) }
    switch sqlite3_step(statement) {
    case SQLITE_ROW: return sqlite3_column_int64(statement, 0)
    case let result:
      try #require(result == SQLITE_DONE)
      return nil
    }
  }

  @Test(
    "Every read method returns a value, whatever its size", arguments: [0, 1, 508, 509, 510, 4_096, 100_000])
  func sizes(size: Int) async throws {
    try await withEngine { engine in
      let data = Data((0..<size).map { UInt8(truncatingIfNeeded: $0) })
      try await engine.write([
        (key: key, data: data), (key: CacheKey(verbatim: "other"), data: Data([1])),
      ])
      #expect(try await engine.read(key: key) == data)
      #expect(try await engine.read(keys: [key, key]) == [data, data])
      #expect(try await engine.readAllData().contains(data))
      #expect(try await engine.readAllDataAndKeys().first { $0.key == key }?.data == data)
      #expect(try await engine.readAllEntries().first?.data == data)
      #expect(try await engine.scan(.prefix("k"), limit: nil).map(\.data) == [data])
    }
  }

  @Test("Replacing or removing an entry deletes its large value")
  func replacing() async throws {
    let (small, large, larger) = (Data([1]), Data(count: 1_000), Data(count: 10_000))
    try await withEngine { engine in
      for (data, rows) in [(large, 1), (larger, 1), (small, 0), (large, 1)] as [(Data, Int64)] {
        try await engine.write(data, key: key)
        #expect(try await engine.read(key: key) == data)
        #expect(try run("SELECT count(*) FROM large_values") == rows)
      }
      try await engine.remove(key: key)
      #expect(try run("SELECT count(*) FROM large_values") == 0)
      try await engine.apply([
        .write(large, key: key), .write(larger, key: key), .remove(key: key), .write(large, key: key),
      ])
      #expect(try await engine.read(key: key) == large)
      #expect(try run("SELECT count(*) FROM large_values") == 1)
      try await engine.removeAllData()
      #expect(try run("SELECT count(*) FROM large_values") == 0)
    }
  }

  @Test("A missing large value is corruption, not absence")
  func missing() async throws {
    try await withEngine { engine in
      try await engine.write(Data(count: 1_000), key: key)
      try run("DELETE FROM large_values")
      let error = await #expect(throws: StorageError.self) { try await engine.read(key: key) }
      #expect(error?.code == .corrupted)
    }
  }

  @Test("Two engines on one database share one write order and see each other's large values")
  func twoEngines() async throws {
    try await withEngine { engine in
      let engines = [engine, try SQLiteStorageEngine(directory: directory)]
      var random = SeededRandom(seed: 1)
      var keys: [CacheKey] = []
      for number in 0..<300 {
        let engine = engines[Int.random(in: 0...1, using: &random)]
        let size = Bool.random(using: &random) ? 10 : 2_000
        if let key = keys.randomElement(using: &random) {
          try await engine.write(Data(repeating: 2, count: 2_010 - size), key: key)
        }
        let new = (0..<Int.random(in: 0..<3, using: &random)).map { CacheKey(verbatim: "\(number)/\($0)") }
        try await engine.write(new.map { ($0, Data(repeating: 1, count: size)) })
        keys += new
      }
      for engine in engines { #expect(try await engine.readAllEntries().map(\.key) == keys) }
      #expect(try run("SELECT count(*) - count(DISTINCT sequence) FROM entries") == 0)
      let unused = """
        SELECT count(*) FROM large_values
        WHERE number NOT IN (SELECT value FROM entries WHERE typeof(value) = 'integer')
        """
      #expect(try run(unused) == 0)
      try await engines[1].close()

      let reopened = try SQLiteStorageEngine(directory: directory)
      keys.append(key)
      try await reopened.write(Data(), key: key)
      #expect(try await engine.readAllEntries().map(\.key) == keys)
      try await reopened.close()
    }
  }
}
