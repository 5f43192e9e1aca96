import Foundation
import StockroomCore
import StockroomSQLite
import Testing

@Suite("Backups of SQLite") struct BackupTests {
  @Test(
    "A directory whose name contains quotation marks can be backed up, whatever follows them",
    arguments: ["it's", "it''s", "it'\u{301}s", "'\u{200d}", "a'; --"])
  func quotationMarks(name: String) async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("x"), key: key(0))
    let target = FileManager.Directory(url: place.parent.appending(path: name))
    try await engine.backUp(to: target)
    let backup = try SQLiteStorageEngine(directory: target, access: .readOnly)
    #expect(try await backup.allKeys() == [key(0)])
    try await backup.close()
    try await engine.close()
  }
}
