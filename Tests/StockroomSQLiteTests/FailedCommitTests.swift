import Foundation
import StockroomCore
import StockroomSQLite
import Testing

/// A commit that is in the log, and could not be synced (rules W6, F4).
@Suite("SQLite: commits whose sync fails") struct FailedCommitTests {
  @Test("A write that has thrown does not come back when the log is recovered")
  func recovery() async throws {
    try #require(FaultyFiles.areInstalled)
    let (place, copy) = (try TestPlace(), try TestPlace())
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    let fault = FaultyFiles.begin(.sync, in: try place.directory.resolvedPath)
    for batch in [[key(0)], [key(0), key(1)]] {
      await expectError(.io, naming: place.database) {
        try await engine.write(batch.map { ($0, data("new")) })
      }
      #expect(try await engine.read(key: key(0)) == data("old"))
    }
    // What is there if the process dies now.
    try FileManager.default.createDirectory(at: copy.url, withIntermediateDirectories: true)
    for (file, second) in [(place.database, copy.database), (place.log, copy.log)] {
      try FileManager.default.copyItem(atPath: file, toPath: second)
    }
    FaultyFiles.end(fault)
    let recovered = try SQLiteStorageEngine(directory: copy.directory)
    #expect(try await recovered.readAllData() == [data("old")])
    try await recovered.verify()
    try await recovered.close()

    try await engine.write(data("last"), key: key(2))
    #expect(try await engine.allKeys() == [key(0), key(2)])
    try await engine.verify()
    try await engine.close()
  }
}
