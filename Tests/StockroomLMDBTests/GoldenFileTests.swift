import Foundation
import StockroomCore
import StockroomLMDB
import TestFixtures
import Testing

@Suite("Golden files") struct GoldenFileTests {
  @Test(
    "A place written by version 0.1.0 is read completely, with timestamps and order, and accepts writes")
  func reading() async throws {
    let golden = try GoldenPlace(in: .module)
    #expect(golden.entries.count == 5)
    let contents = try await golden.contents { try LMDBStorageEngine(directory: $0) }
    #expect(contents.found == golden.entries)
    #expect(contents.foundAfterWrite.dropLast() == golden.entries[...])
    #expect(contents.foundAfterWrite.last?.key == GoldenPlace.newKey)
  }

  @Test("Writes the golden files", .enabled(if: GoldenPlace.isWriting))
  func writing() async throws {
    let directory = try TemporaryDirectory(isCreated: false)
    try await GoldenPlace.write(beside: #filePath, in: directory.url, omitting: ["lock.mdb"]) {
      try LMDBStorageEngine(directory: $0)
    }
  }
}
