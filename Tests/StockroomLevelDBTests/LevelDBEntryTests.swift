import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

@Suite("LevelDB: entries")
struct LevelDBEntryTests {
  @Test("Written entries are present in this engine and in the next one", arguments: Durability.allCases)
  func survivesReopening(_ durability: Durability) async throws {
    let directory = try TemporaryDirectory()
    let first = try directory.open(durability: durability)
    try await first.write(Data("one".utf8), key: CacheKey(verbatim: "a"))
    try await first.write(Data(), key: CacheKey(verbatim: "b"))
    #expect(try await first.read(key: CacheKey(verbatim: "a")) == Data("one".utf8))
    let createdAt = try await first.createdAt(key: CacheKey(verbatim: "a"))
    try await first.close()

    let second = try directory.open(durability: durability)
    #expect(try await second.read(key: CacheKey(verbatim: "a")) == Data("one".utf8))
    #expect(try await second.read(key: CacheKey(verbatim: "b")) == Data())
    #expect(try await second.read(key: CacheKey(verbatim: "c")) == nil)
    #expect(try await second.createdAt(key: CacheKey(verbatim: "a")) == createdAt)
    #expect(try await second.keyCount() == 2)
  }

  @Test("A value of 64 MiB is preserved, before and after reopening")
  func largeValue() async throws {
    let directory = try TemporaryDirectory()
    let engine = try directory.open()
    let key = CacheKey(verbatim: "large")
    var data = Data(repeating: 0xA5, count: 64 << 20)
    for position in stride(from: 0, to: data.count, by: 997) {
      data[position] = UInt8(truncatingIfNeeded: position)
    }
    try await engine.write(data, key: key)
    #expect(try await engine.read(key: key) == data)
    try await engine.close()
    let again = try directory.open()
    #expect(try await again.read(key: key) == data)
    #expect(try await again.read(key: key)?.startIndex == 0)
    #expect(try await again.updatedAt(key: key) != nil)
  }
}
