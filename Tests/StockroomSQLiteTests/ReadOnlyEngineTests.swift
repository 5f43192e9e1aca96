import Foundation
import StockroomCore
import StockroomSQLite
import Testing

@Suite("An engine that only reads") struct ReadOnlyEngineTests {
  private let place: TestPlace

  init() throws { place = try TestPlace() }

  private func open() throws -> SQLiteStorageEngine {
    try SQLiteStorageEngine(directory: place.directory, access: .readOnly)
  }

  @Test("It makes no database")
  func makesNothing() throws {
    #expect(throws: StorageError.self) { try open() }
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.parent.path) == [])
  }

  @Test("It sees what others write, and refuses to write")
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
}
