import Foundation
import StockroomCore
import Testing

@testable import StockroomSQLite

@Suite("SQLite: the readers' connection pool") struct ReaderPoolTests {
  struct NotRolledBack: Error {}

  @Test("A connection returned with an open transaction is not reused (rule W1)")
  func openTransaction() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try await engine.write(data("old"), key: key(0))
    let options = SQLiteOptions(
      durability: .full, permissions: .owner, lockTimeout: .seconds(60), cacheSize: 0)
    let file = try SQLiteFile("data.sqlite3", in: place.directory, options)
    let connection = try file.openFirst()
    let files = try SQLiteFiles(file, openOn: connection)
    let readers = SQLiteReaders(of: file, files)
    #expect(throws: NotRolledBack.self) {
      try readers.withReader { reader in
        try reader.run(.beginReading)
        #expect(try reader.value(of: key(0)) == data("old"))
        throw NotRolledBack()
      }
    }
    try await engine.write(data("new"), key: key(0))
    let value = try readers.withReader { try $0.value(of: key(0)) }
    #expect(value == data("new"))
    readers.drain()
    connection.close()
    files.close()
    try await engine.close()
  }

  @Test("A transaction begins even if the previous one was not rolled back (rule F4)")
  func nextTransaction() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    let connection = try SQLiteConnection(
      file: try place.directory.resolvedPath + "/data.sqlite3", path: place.database,
      lockTimeout: .seconds(60))
    try connection.run(.beginWriting)
    try connection.transaction(.beginWriting) { try connection.run(.removeAllLarge) }
    #expect(!connection.isInTransaction)
    connection.close()
    try await engine.close()
  }
}
