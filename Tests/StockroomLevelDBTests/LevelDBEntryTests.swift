import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

@Suite("LevelDB: entries")
struct LevelDBEntryTests {
  let directory: TemporaryDirectory
  let engine: LevelDBStorageEngine

  init() throws {
    directory = try TemporaryDirectory()
    engine = try directory.open()
  }

  @Test("What was written is there, in this engine and in the next one", arguments: Durability.allCases)
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

  @Test("Keys come back byte for byte and in byte order")
  func keys() async throws {
    let keys = [
      "a\u{0}b", "\u{0}", "..", "../../x", "/etc/passwd", "A", "a", "e\u{301}", "\u{e9}", "%2F", " a", "a ",
      String(repeating: "\u{1F9E1}", count: 127) + "abc", String(repeating: "x", count: 511), "\u{10FFFF}",
    ].map(CacheKey.init(verbatim:))
    for key in keys { try await engine.write(Data(key.value.utf8), key: key) }
    #expect(try await engine.allKeys() == keys.sorted())
    #expect(try await engine.read(keys: keys) == keys.map { Data($0.value.utf8) })
    #expect(try await engine.scan(.all, limit: nil).map(\.key) == keys.sorted())
    #expect(try await engine.keyCount() == keys.count)
  }

  @Test("Within a batch, removing and writing again renews the entry, and the count stays right")
  func batch() async throws {
    let (a, b, c) = (CacheKey(verbatim: "a"), CacheKey(verbatim: "b"), CacheKey(verbatim: "c"))
    try await engine.write([(a, Data("1".utf8)), (b, Data("2".utf8)), (a, Data("3".utf8))])
    #expect(try await engine.keyCount() == 2)
    let createdAt = try #require(try await engine.createdAt(key: a))
    try await engine.apply([.write(Data("4".utf8), key: a)])
    #expect(try await engine.createdAt(key: a) == createdAt)
    #expect(try await engine.readAllEntries().map(\.key) == [a, b])

    try await engine.apply([
      .remove(key: a), .remove(key: c), .write(Data("5".utf8), key: a), .write(Data("6".utf8), key: c),
      .remove(key: c), .remove(key: c),
    ])
    #expect(try await engine.keyCount() == 2)
    #expect(try #require(try await engine.createdAt(key: a)) > createdAt)
    #expect(try await engine.readAllEntries().map(\.key) == [b, a])

    try await engine.apply([.write(Data(), key: c), .removeAll, .write(Data("7".utf8), key: b)])
    #expect(try await engine.keyCount() == 1)
    #expect(try await engine.readAllData() == [Data("7".utf8)])
    try await engine.removeAllData()
    #expect(try await engine.keyCount() == 0)
    #expect(try await engine.allKeys().isEmpty)
  }
}
