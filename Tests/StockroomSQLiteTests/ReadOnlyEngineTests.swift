import Foundation
import StockroomCore
import StockroomSQLite
import Testing

@Suite("A read-only engine") struct ReadOnlyEngineTests {
  private let place: TestPlace

  init() throws { place = try TestPlace() }

  private func open() throws -> SQLiteStorageEngine {
    try SQLiteStorageEngine(directory: place.directory, access: .readOnly)
  }

  @Test("It creates no database")
  func makesNothing() throws {
    #expect(throws: StorageError.self) { try open() }
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.parent.path) == [])
  }

  @Test("It sees the writes of others, and refuses to write")
  func reads() async throws {
    let writer = try SQLiteStorageEngine(directory: place.directory)
    let reader = try open()
    #expect(!reader.capabilities.contains(.changeFeed))
    for value in ["1", "2"] {
      try await writer.write(Data(value.utf8), key: CacheKey(verbatim: "key"))
      #expect(try await reader.read(key: CacheKey(verbatim: "key")) == Data(value.utf8))
    }
    #expect(try await reader.withTransaction { try $0.allKeys() } == [CacheKey(verbatim: "key")])
    try await reader.verify()
    func refuses(_ code: StorageError.Code, _ body: () async throws -> Void) async {
      let error = await #expect(throws: StorageError.self) { try await body() }
      #expect(error?.code == code)
    }
    await refuses(.readOnly) { try await reader.write(Data(), key: CacheKey(verbatim: "key")) }
    await refuses(.readOnly) { try await reader.removeAllData() }
    await refuses(.readOnly) {
      try await reader.withTransaction { try $0.remove(key: CacheKey(verbatim: "key")) }
    }
    await refuses(.unsupported) { _ = try await reader.changes() }
    try await writer.close()
    #expect(try await reader.read(key: CacheKey(verbatim: "key")) == Data("2".utf8))
    try await reader.close()
  }

  private func set(_ value: String, on engine: SQLiteStorageEngine) async throws {
    try await engine.write(Data(value.utf8), key: CacheKey(verbatim: "key"))
  }

  @Test("On a backup without a log, it sees the writes of an engine opened after it")
  func backup() async throws {
    let original = try SQLiteStorageEngine(directory: place.directory)
    try await set("1", on: original)
    let copy = FileManager.Directory(url: place.parent.appending(path: "backup"))
    try await original.backUp(to: copy)
    try await original.close()
    let reader = try SQLiteStorageEngine(directory: copy, access: .readOnly)
    #expect(try await reader.read(key: CacheKey(verbatim: "key")) == Data("1".utf8))
    for value in ["2", "3"] {
      let writer = try SQLiteStorageEngine(directory: copy)
      try await set(value, on: writer)
      #expect(try await reader.read(key: CacheKey(verbatim: "key")) == Data(value.utf8))
      try await writer.close()
      #expect(try await reader.read(key: CacheKey(verbatim: "key")) == Data(value.utf8))
    }
    try await reader.close()
  }

  @Test("If it is closed last, it does not checkpoint the log")
  func closedLast() async throws {
    try await SQLiteStorageEngine(directory: place.directory).close()
    let reader = try open()
    _ = try await reader.allKeys()
    let writer = try SQLiteStorageEngine(directory: place.directory)
    try await set("1", on: writer)
    try await writer.close()
    let log = place.database + "-wal"
    let before = FileManager.default.contents(atPath: place.database)
    let hasLog = FileManager.default.contents(atPath: log)?.isEmpty == false
    try #require(hasLog, "The engine that writes has left nothing in the log.")
    try await reader.close()
    #expect(FileManager.default.contents(atPath: place.database) == before)
    #expect(try await open().read(key: CacheKey(verbatim: "key")) == Data("1".utf8))
  }

  @Test("If it is closed alone, it leaves no file behind")
  func closedAlone() async throws {
    try await SQLiteStorageEngine(directory: place.directory).close()
    let before = try FileManager.default.contentsOfDirectory(atPath: place.directory.path).sorted()
    let reader = try open()
    _ = try await reader.allKeys()
    try await reader.close()
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.directory.path).sorted() == before)
  }
}
