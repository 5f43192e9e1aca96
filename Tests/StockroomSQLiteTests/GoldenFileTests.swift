import Foundation
import StockroomCore
import StockroomSQLite
import TestFixtures
import Testing

@Suite("Golden files") struct GoldenFileTests {
  @Test(
    "A place that version 0.1.0 has written is read completely, with times and order, and written further")
  func reading() async throws {
    let golden = try GoldenPlace(in: .module)
    let engine = try SQLiteStorageEngine(directory: golden.directory.directory)
    try await engine.verify()
    #expect(try await GoldenPlace.entries(of: engine) == golden.entries)
    #expect(golden.entries.count == 5)
    let key = CacheKey(verbatim: "new")
    try await engine.write(Data("new".utf8), key: key)
    try await engine.close()

    let again = try SQLiteStorageEngine(directory: golden.directory.directory)
    try await again.verify()
    #expect(try await GoldenPlace.entries(of: again).dropLast() == golden.entries[...])
    #expect(try await again.readAllEntries().last?.key == key)
    try await again.close()
  }

  @Test("Writes the golden files", .enabled(if: GoldenPlace.isWriting))
  func writing() async throws {
    let directory = try TemporaryDirectory(isCreated: false)
    try await GoldenPlace.write(beside: #filePath, in: directory.url) {
      try SQLiteStorageEngine(directory: $0)
    }
  }
}
