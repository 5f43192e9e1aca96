import StockroomCSQLite
import Foundation
import StockroomCore
import StockroomSQLite
import TestFixtures
import Testing

#if canImport(Darwin)
  /// The value of `F_OFD_GETLK`, which the headers hide.
  private let descriptorGetLock: Int32 = 92
#else
  private let descriptorGetLock: Int32 = 36
#endif

@Suite struct SQLiteStorageEngineTests {
  let directory = FileManager.Directory.temporary(appendingPath: "stockroom-sqlite-\(UUID().uuidString)")
  var file: String { directory.url.appending(path: "data.sqlite3").path(percentEncoded: false) }
  let key = CacheKey(verbatim: "key")

  /// Calls `body`, then removes the directory.
  func cleaningUp<Result>(_ body: () async throws -> Result) async throws -> Result {
    defer { try? FileManager.default.removeItem(at: directory.url) }
    return try await body()
  }

  /// The contents of the files in the directory, by name.
  func contents() throws -> [String: Data] {
    let names = try FileManager.default.contentsOfDirectory(atPath: directory.url.path(percentEncoded: false))
    return try Dictionary(
      uniqueKeysWithValues: names.map { ($0, try Data(contentsOf: directory.url.appending(path: $0))) })
  }

  /// Runs SQL on a database file like another program.
  func run(_ sql: String, on path: String) throws {
    var handle: OpaquePointer?
    defer { sqlite3_close_v2(handle) }
    try #require(sqlite3_open(path, &handle) == SQLITE_OK)
    try #require(sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK)
  }

  /// The code of the error thrown by opening. The error must name the file.
  func openingFails(sourceLocation: SourceLocation = #_sourceLocation) throws -> StorageError.Code {
    let error = try #require(throws: StorageError.self, sourceLocation: sourceLocation) {
      _ = try SQLiteStorageEngine(directory: directory)
    }
    #expect(error.description.contains(file), sourceLocation: sourceLocation)
    return error.code
  }

  @Test("A connection caches no more of the database than cacheSize allows, for any value", .ownThreads)
  func cacheSize() async {
    // In a separate process, where no other engine allocates memory.
    await #expect(processExitsWith: .success) {
      var used: [Int64] = []
      for size in [.min, 1 << 20, 64 << 20, .max] {
        let directory = FileManager.Directory.temporary(
          appendingPath: "stockroom-sqlite-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory.url) }
        let engine = try SQLiteStorageEngine(directory: directory, durability: .process, cacheSize: size)
        try await engine.write((0..<16_000).map { (CacheKey(verbatim: "\($0)"), Data(count: 900)) })
        try #require(try await engine.readAllData().count == 16_000)
        used.append(sqlite3_memory_used())
        try await engine.close()
      }
      try #require(used[0] < 4 << 20, "\(used)")
      try #require(used[1] < 6 << 20, "\(used)")
      try #require(used[2] > 12 << 20 && used[3] > 12 << 20, "\(used)")
    }
  }

  @Test("Another program's database is refused and left unchanged", arguments: ["DELETE", "WAL"])
  func foreignDatabase(journalMode: String) async throws {
    try await cleaningUp {
      try FileManager.default.createDirectory(at: directory.url, withIntermediateDirectories: true)
      try run("PRAGMA journal_mode=\(journalMode); CREATE TABLE t (a); INSERT INTO t VALUES (1);", on: file)
      let before = try contents()
      #expect(try openingFails() == .unsupported)
      #expect(try contents() == before)
    }
  }

  @Test("Refusing another program's database does not release that program's locks")
  func foreignLocks() async throws {
    try await cleaningUp {
      try FileManager.default.createDirectory(at: directory.url, withIntermediateDirectories: true)
      var owner: OpaquePointer?
      defer { sqlite3_close_v2(owner) }
      try #require(sqlite3_open(file, &owner) == SQLITE_OK)
      try #require(sqlite3_exec(owner, "CREATE TABLE t (a); BEGIN EXCLUSIVE", nil, nil, nil) == SQLITE_OK)
      #expect(try openingFails() == .unsupported)

      // A process does not see its own locks, except through an open-file-description lock.
      let descriptor = open(file, O_RDWR)
      defer { close(descriptor) }
      var lock = flock()
      lock.l_type = Int16(F_WRLCK)
      lock.l_whence = Int16(SEEK_SET)
      try #require(fcntl(descriptor, descriptorGetLock, &lock) == 0)
      #expect(lock.l_type != Int16(F_UNLCK))
    }
  }

  @Test(
    "A file that is not a database is refused and left unchanged",
    arguments: ["a note", String(repeating: "x", count: 9_000)])
  func textFile(text: String) async throws {
    try await cleaningUp {
      try FileManager.default.createDirectory(at: directory.url, withIntermediateDirectories: true)
      try Data(text.utf8).write(to: URL(filePath: file))
      let before = try contents()
      #expect(try openingFails() == .corrupted)
      #expect(try contents() == before)
    }
  }

  @Test("A database of a later format is refused and left unchanged")
  func laterFormat() async throws {
    try await cleaningUp {
      try await SQLiteStorageEngine(directory: directory).close()
      try run("PRAGMA user_version = 99", on: file)
      let before = try contents()
      #expect(try openingFails() == .unsupported)
      #expect(try contents() == before)
    }
  }

  @Test("A truncated database is reported, whatever its length", arguments: [0, 1, 99, 100, 4_096, 20_000])
  func truncated(length: UInt64) async throws {
    try await cleaningUp {
      let engine = try SQLiteStorageEngine(directory: directory)
      try await engine.write((0..<200).map { (key: CacheKey(verbatim: "\($0)"), data: Data(count: 1_000)) })
      try await engine.close()
      let handle = try FileHandle(forWritingTo: URL(filePath: file))
      try handle.truncate(atOffset: length)
      try handle.close()
      #expect(try openingFails() == .corrupted)
    }
  }

  @Test("A database with a short last page is corrupted, and one with extra bytes is not")
  func lengthWithinAPage() async throws {
    try await cleaningUp {
      let data = Data((0..<70_000).map { UInt8(truncatingIfNeeded: $0 / 7) })
      let engine = try SQLiteStorageEngine(directory: directory)
      try await engine.write(data, key: CacheKey(verbatim: "large"))
      try await engine.close()
      let whole = try Data(contentsOf: URL(filePath: file))
      for missing in [1, 100, 4_095] {
        try whole.dropLast(missing).write(to: URL(filePath: file))
        #expect(try openingFails() == .corrupted)
        #expect {
          try SQLiteStorageEngine(directory: directory, access: .readOnly)
        } throws: {
          ($0 as? StorageError)?.code == .corrupted
        }
      }
      try (whole + Data(count: 5_000)).write(to: URL(filePath: file))
      let longer = try SQLiteStorageEngine(directory: directory)
      #expect(try await longer.read(key: CacheKey(verbatim: "large")) == data)
    }
  }

  @Test(
    "A header with an unknown read or write version is corrupted",
    arguments: [18, 19])
  func unknownVersions(offset: Int) async throws {
    try await cleaningUp {
      try await SQLiteStorageEngine(directory: directory).close()
      var bytes = try Data(contentsOf: URL(filePath: file))
      bytes[offset] ^= 0x20
      try bytes.write(to: URL(filePath: file))
      #expect(try openingFails() == .corrupted)
    }
  }

  @Test("A write-ahead log without its database is not applied to a new one")
  func logWithoutDatabase() async throws {
    try await cleaningUp {
      let engine = try SQLiteStorageEngine(directory: directory)
      try await engine.write(Data([1]), key: key)
      let log = try Data(contentsOf: URL(filePath: file + "-wal"))
      try await engine.close()
      try FileManager.default.removeItem(atPath: file)
      try log.write(to: URL(filePath: file + "-wal"))
      #expect(try openingFails() == .corrupted)
      #expect(try contents() == ["data.sqlite3-wal": log])
    }
  }

  @Test("Two databases with different names can share one directory")
  func filenames() async throws {
    try await cleaningUp {
      let first: some StorageEngine = try .sqlite(directory: directory, databaseFilename: "first")
      let second: some StorageEngine = try .sqlite(directory: directory, databaseFilename: "second")
      try await first.write(Data([1]), key: key)
      #expect(try await second.read(key: key) == nil)
      try await first.close()
      try await second.close()
      #expect(try contents().keys.sorted() == ["first.sqlite3", "second.sqlite3"])
    }
  }

  @Test(
    "A database name that is not a file name is refused",
    arguments: ["", "../x", "a/b", "a\0b", "../\u{301}x"])
  func hostileFilename(name: String) throws {
    let error = #expect(throws: StorageError.self) {
      _ = try SQLiteStorageEngine(directory: directory, databaseFilename: name)
    }
    #expect(error?.code == .unsupported)
    #expect(!FileManager.default.fileExists(atPath: directory.url.path(percentEncoded: false)))
  }

  @Test("A default engine that cannot be opened throws the reason from every call")
  func defaultEngineThatFails() async throws {
    let engine = SQLiteStorageEngine.default(appendingPath: "../../../../../../../../dev/null/x")
    let error = await #expect(throws: StorageError.self) { try await engine.write(Data(), key: key) }
    #expect(error?.description.contains("/Stockroom/") == true, "\(error as Any)")
    await #expect(throws: StorageError.self) { try await engine.allKeys() }
    try await engine.close()
  }

  @Test("Many engines can create the same database concurrently")
  func openingTogether() async throws {
    try await cleaningUp {
      let engines = try await withThrowingTaskGroup(of: SQLiteStorageEngine.self) { group in
        for _ in 0..<8 { group.addTask { try SQLiteStorageEngine(directory: directory) } }
        return try await group.reduce(into: []) { $0.append($1) }
      }
      try await engines[0].write(Data([7]), key: key)
      for engine in engines { #expect(try await engine.read(key: key) == Data([7])) }
    }
  }

  @Test("A value beyond SQLite's limit is refused, and the previous value is kept")
  func valueTooLarge() async throws {
    try await cleaningUp {
      let engine = try SQLiteStorageEngine(directory: directory, durability: .process)
      try await engine.write(Data([1]), key: key)
      let error = await #expect(throws: StorageError.self) {
        try await engine.write(Data(count: 1_000_000_001), key: key)
      }
      #expect(error?.code == .valueTooLarge)
      #expect(try await engine.read(key: key) == Data([1]))
      try await engine.close()
    }
  }

  @Test(
    "A database without one of its tables, or with metadata out of range, is corrupted",
    arguments: [
      "DROP TABLE entries", "DROP TABLE large_values", "DROP TABLE metadata", "DELETE FROM metadata",
      "UPDATE metadata SET sequence = -1", "UPDATE metadata SET sequence = 9223372036854775807",
    ])
  func corruptedTables(sql: String) async throws {
    try await cleaningUp {
      try await SQLiteStorageEngine(directory: directory).close()
      try run(sql, on: file)
      #expect(try openingFails() == .corrupted)
    }
  }
}
