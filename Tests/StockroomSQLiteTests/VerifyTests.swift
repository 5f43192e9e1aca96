import Foundation
import StockroomCore
import StockroomSQLite
import Testing

/// What `verify()` finds (rule F2).
@Suite struct VerifyTests {
  private func makeEntries(_ place: TestPlace) async throws {
    let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    try await engine.write((0..<300).map { (key($0), Data(count: $0.isMultiple(of: 3) ? 2_000 : 20)) })
    try await engine.remove(keys: (0..<100).map(key))
    try await engine.verify()
    try await engine.close()
  }

  @Test(
    "A database with inconsistent tables opens, and verify() finds it corrupted",
    arguments: [
      "DELETE FROM large_values WHERE number = (SELECT max(number) FROM large_values)",
      "DELETE FROM large_values WHERE number = (SELECT min(number) FROM large_values)",
      "INSERT INTO large_values VALUES (100000, x'00')",
      "INSERT INTO large_values VALUES (1, x'00')",
      "UPDATE entries SET value = (SELECT max(number) FROM large_values) WHERE typeof(value) = 'integer'",
      "UPDATE entries SET value = 'text' WHERE key = CAST('key 200' AS BLOB)",
      "UPDATE entries SET value = -1 WHERE key = CAST('key 200' AS BLOB)",
      "UPDATE entries SET age = -1 WHERE key = CAST('key 200' AS BLOB)",
      "UPDATE entries SET sequence = 7",
      "UPDATE entries SET sequence = 1000000000 WHERE key = CAST('key 200' AS BLOB)",
      "UPDATE entries SET key = x'' WHERE key = CAST('key 200' AS BLOB)",
      "UPDATE entries SET key = x'ff' WHERE key = CAST('key 200' AS BLOB)",
      "UPDATE entries SET key = zeroblob(600) WHERE key = CAST('key 200' AS BLOB)",
      "UPDATE entries SET key = 'key 200' WHERE key = CAST('key 200' AS BLOB)",
      "INSERT INTO metadata VALUES (1)",
    ])
  func invariants(sql: String) async throws {
    let place = try TestPlace()
    try await makeEntries(place)
    try RawConnection(place.database).run(sql)
    let engine = try SQLiteStorageEngine(directory: place.directory)
    await expectError(.corrupted, naming: place.database) { try await engine.verify() }
    try await engine.close()
  }

  @Test("verify() finds an overwritten page that opening does not read")
  func corruptedPage() async throws {
    let place = try TestPlace()
    try await makeEntries(place)
    let size = try #require(try size(of: place.database))
    let file = try FileHandle(forUpdating: URL(filePath: place.database))
    // Free pages are read only when a write needs them.
    try file.seek(toOffset: UInt64(size - 4_096))
    try file.write(contentsOf: Data(repeating: 0x5a, count: 4_096))
    try file.close()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    await expectError(.corrupted, naming: place.database) { try await engine.verify() }
    try await engine.close()
  }

  @Test("A cancelled verification throws CancellationError and leaves the engine usable")
  func cancelled() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    try await engine.write((0..<20_000).map { (key($0), Data(count: 600)) })
    for number in 0..<20 {
      let task = Task { try await engine.verify() }
      for _ in 0..<number { _ = try await engine.read(key: key(number)) }
      task.cancel()
      do {
        try await task.value
      } catch is CancellationError {}
    }
    try await engine.verify()
    #expect(try await engine.keyCount() == 20_000)
    try await engine.close()
  }

  @Test("Entries can be written and read during a verification")
  func concurrentWrites() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory, durability: .process)
    try await engine.write((0..<5_000).map { (key($0), Data(count: 600)) })
    async let verified: Void = engine.verify()
    for number in 0..<200 {
      try await engine.write(Data(count: number * 10), key: key(number))
      #expect(try await engine.read(key: key(number))?.count == number * 10)
    }
    try await verified
    try await engine.close()
  }

  @Test("An engine whose database has been deleted throws from verify()")
  func deleted() async throws {
    let place = try TestPlace()
    let engine = try SQLiteStorageEngine(directory: place.directory)
    try FileManager.default.removeItem(at: place.url)
    await expectError(.io, naming: place.database) { try await engine.verify() }
    try await engine.close()
    await expectError(.closed, naming: place.database) { try await engine.verify() }
  }
}
