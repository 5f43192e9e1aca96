import Foundation
import StockroomCore
import TestFixtures
import StockroomEngines
import StockroomKitSupport
import Testing

@Suite(.serialized) struct LargeRequestsTests {
  /// A file for each key costs several system calls, and 200,000 of them show what a million would.
  static let requests = EngineCatalogue.all.map { ($0.name, $0.name == "files" ? 200_000 : 1_000_000) }

  @Test("A request of a million keys succeeds, one of 200,000 with a file for each", arguments: requests)
  func manyKeys(name: String, count: Int) async throws {
    let directory = try TemporaryDirectory()
    let engine = try EngineCatalogue.select([name])[0].open(directory.appending("engine"), .process)
    let present = (0..<1_000).map { CacheKey(verbatim: "key-\($0 * 1_000)") }
    try await engine.write(present.map { (key: $0, data: Data($0.value.utf8)) })
    let request = Array(Self.millionKeys[..<count])
    let found = Array(present.prefix(count / 1_000))
    #expect(try await engine.read(keys: request) == found.map { Data($0.value.utf8) })
    #expect(try await engine.keysExist(request) == found)
    try await engine.close()
  }

  /// Made once for all engines, since that takes longer than some of the requests.
  private static let millionKeys = (0..<1_000_000).map { CacheKey(verbatim: "key-\($0)") }

  /// The other engines are limited by the file system and by memory only.
  @Test(
    "A value beyond the engine's maximum throws .valueTooLarge", arguments: ["sqlite", "lmdb", "leveldb"])
  func tooLargeValue(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try EngineCatalogue.select([name])[0].open(directory.appending("engine"), .process)
    let key = CacheKey(verbatim: "large")
    try await engine.write(Data([1]), key: key)
    // Pages of zeros that are not accessed take no memory.
    let value = Data(count: 1 << 32)
    for write in [{ try await engine.write(value, key: key) }, { try await engine.write([(key, value)]) }] {
      let error = await #expect(throws: StorageError.self) { try await write() }
      #expect(error?.code == .valueTooLarge)
    }
    #expect(try await engine.readAllData() == [Data([1])])
    try await engine.close()
  }

  /// A file for each entry takes long to create, and 20,000 of them show what 100,000 would.
  static let batches = EngineCatalogue.all.map { ($0.name, $0.name == "files" ? 20_000 : 100_000) }

  @Test("100,000 entries fit in one batch, and 20,000 with a file for each", arguments: batches)
  func largeBatch(name: String, count: Int) async throws {
    let directory = try TemporaryDirectory()
    let engine = try EngineCatalogue.select([name])[0].open(directory.appending("engine"), .process)
    let keys = (0..<count).map { CacheKey(verbatim: "key-\($0)") }
    try await engine.write(keys.map { (key: $0, data: Data($0.value.utf8)) })
    #expect(try await engine.keyCount() == keys.count)
    #expect(try await engine.readAllEntries().map(\.key) == keys)
    try await engine.remove(keys: keys)
    #expect(try await engine.keyCount() == 0)
    try await engine.close()
  }
}
