import Foundation
import StockroomCore
import TestFixtures
import StockroomEngines
import StockroomKitSupport
import Testing

struct LargeRequestsTests {
  @Test(
    "A request of more keys than a statement may have parameters succeeds",
    arguments: EngineCatalog.onThisMachine.map(\.name))
  func request(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.appending("engine"), .process)
    // SQLite allows 250,000. The other engines have no statements; 70,000 do not fit into two bytes.
    let count = name == "sqlite" ? 300_000 : TestRun.count(70_000, exhaustive: 300_000)
    let keys = (0..<count).map { CacheKey(verbatim: "key-\($0)") }
    let present = stride(from: 0, to: count, by: 300).map { keys[$0] }
    try await engine.write(present.map { (key: $0, data: Data($0.value.utf8)) })
    #expect(try await engine.read(keys: keys) == present.map { Data($0.value.utf8) })
    #expect(try await engine.keysExist(keys) == present)
    try await engine.close()
  }

  /// Only engines with a maximum of their own. The others are limited by the file system and by memory.
  @Test(
    "A value beyond the engine's maximum throws .valueTooLarge", arguments: ["sqlite", "lmdb", "leveldb"])
  func tooLargeValue(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.appending("engine"), .process)
    let key = CacheKey(verbatim: "large")
    try await engine.write(Data([1]), key: key)
    // Pages of zeros that are never accessed use no memory.
    let value = Data(count: 1 << 32)
    for write in [{ try await engine.write(value, key: key) }, { try await engine.write([(key, value)]) }] {
      let error = await #expect(throws: StorageError.self) { try await write() }
      #expect(error?.code == .valueTooLarge)
    }
    #expect(try await engine.readAllData() == [Data([1])])
    try await engine.close()
  }

  /// Fewer for engines that create a file per entry.
  @Test("100,000 entries fit in one batch", arguments: EngineCatalog.onThisMachine.map(\.name))
  func largeBatch(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.appending("engine"), .process)
    let count = name == "files" ? TestRun.count(12_000, exhaustive: 100_000) : 100_000
    let keys = (0..<count).map { CacheKey(verbatim: "key-\($0)") }
    try await engine.write(keys.map { (key: $0, data: Data($0.value.utf8)) })
    #expect(try await engine.keyCount() == keys.count)
    #expect(try await engine.readAllEntries().map(\.key) == keys)
    try await engine.remove(keys: keys)
    #expect(try await engine.keyCount() == 0)
    try await engine.close()
  }
}
