import Foundation
import StockroomCore
import TestFixtures
import StockroomEngines
import StockroomKitSupport
import Testing

@Suite(.serialized) struct LargeRequestsTests {
  @Test("A million keys are an ordinary request", arguments: EngineCatalogue.all.map(\.name))
  func millionKeys(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try EngineCatalogue.select([name])[0].open(directory.appending("engine"), .process)
    let present = (0..<1_000).map { CacheKey(verbatim: "key-\($0 * 1_000)") }
    try await engine.write(present.map { (key: $0, data: Data($0.value.utf8)) })
    let request = (0..<1_000_000).map { CacheKey(verbatim: "key-\($0)") }
    #expect(try await engine.read(keys: request) == present.map { Data($0.value.utf8) })
    #expect(try await engine.keysExist(request) == present)
    try await engine.close()
  }

  @Test("64 MiB fit in one value", arguments: EngineCatalogue.all.map(\.name))
  func largeValue(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try EngineCatalogue.select([name])[0].open(directory.appending("engine"), .process)
    let key = CacheKey(verbatim: "large")
    var random = SeededRandom(seed: 1)
    let mebibyte = random.bytes(1 << 20)
    let value = (1...64).reduce(into: Data()) { $0 += mebibyte.dropLast() + [UInt8($1)] }
    try await engine.write(value, key: key)
    #expect(try await engine.read(key: key) == value)
    try await engine.write(Data([1]), key: key)
    #expect(try await engine.readAllData() == [Data([1])])
    try await engine.close()
  }

  /// Files may be as large as the file system lets them, and memory as large as there is.
  @Test("A value beyond the engine's maximum is refused", arguments: ["sqlite", "lmdb", "leveldb"])
  func tooLargeValue(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try EngineCatalogue.select([name])[0].open(directory.appending("engine"), .process)
    let key = CacheKey(verbatim: "large")
    try await engine.write(Data([1]), key: key)
    // Zeros that nobody looks at take no memory.
    let value = Data(count: 1 << 32)
    for write in [{ try await engine.write(value, key: key) }, { try await engine.write([(key, value)]) }] {
      let error = await #expect(throws: StorageError.self) { try await write() }
      #expect(error?.code == .valueTooLarge)
    }
    #expect(try await engine.readAllData() == [Data([1])])
    try await engine.close()
  }

  @Test("100,000 entries fit in one batch", arguments: EngineCatalogue.all.map(\.name))
  func largeBatch(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try EngineCatalogue.select([name])[0].open(directory.appending("engine"), .process)
    let keys = (0..<100_000).map { CacheKey(verbatim: "key-\($0)") }
    try await engine.write(keys.map { (key: $0, data: Data($0.value.utf8)) })
    #expect(try await engine.keyCount() == keys.count)
    #expect(try await engine.readAllEntries().map(\.key) == keys)
    try await engine.remove(keys: keys)
    #expect(try await engine.keyCount() == 0)
    try await engine.close()
  }
}
