import Foundation
import StockroomCore
import StockroomKitSupport
import StockroomLayers
import StockroomMemory
import StockroomSQLite
import StockroomStore
import TestFixtures
import Testing

@Suite("Compressed values")
struct CompressedEngineTests {
  private let base = MemoryStorageEngine()
  private let key = CacheKey(verbatim: "k")

  private static let text = Data(String(repeating: "All work and no play. ", count: 2_000).utf8)

  private static func random(_ count: Int) -> Data {
    var random = SeededRandom(seed: 1)
    return random.bytes(count)
  }

  @Test("Values of every kind are preserved", arguments: CompressionLevel.allCases)
  func roundTrip(_ level: CompressionLevel) async throws {
    let engine = base.compressed(level: level)
    for count in [0, 1, 31, 32, 33, 100, 4_096, 200_000, 3 << 20] {
      for value in [Data(count: count), Self.random(count), Self.text.prefix(count)] {
        try await engine.write(value, key: key)
        let found = try #require(try await engine.read(key: key))
        #expect(found == value)
        #expect(found.startIndex == 0)
      }
    }
  }

  @Test("A compressible value takes less space, and any other at most one byte more")
  func room() async throws {
    let engine = base.compressed()
    try await engine.write(Self.text, key: key)
    #expect(try #require(try await base.read(key: key)).count < Self.text.count / 50)
    let random = Self.random(10_000)
    try await engine.write(random, key: key)
    #expect(try await base.read(key: key)?.count == random.count + 1)
  }

  @Test("Values of all levels can be read at any level")
  func levels() async throws {
    for level in CompressionLevel.allCases {
      try await base.compressed(level: level).write(Self.text, key: .init(verbatim: "\(level)"))
    }
    #expect(try await base.compressed().readAllData() == Array(repeating: Self.text, count: 3))
  }

  /// 440 bytes of text, compressed by zlib and zstd themselves.
  @Test(
    "Output of zlib and zstd can be read",
    arguments: [
      ("Z", "eNpzzMlRKM8vylZIzEtRyMtXKMhJrNRTcBwVHeSiAFyglME="),
      ("S", "KLUv/QRo7QAAsEFsbCB3b3JrIGFuZCBubyBwbGF5LiABAD5TnU2uTzLe"),
    ])
  func foreign(_ method: String, _ compressed: String) async throws {
    let size = withUnsafeBytes(of: UInt64(440).littleEndian) { Data($0) }
    let frame = try #require(Data(base64Encoded: compressed))
    try await base.write(Data(method.utf8) + size + frame, key: key)
    #if Zstandard
      let isReadable = true
    #else
      let isReadable = method == "Z"
    #endif
    if isReadable {
      #expect(try await base.compressed().read(key: key) == Self.text.prefix(440))
    } else {
      let error = await #expect(throws: StorageError.self) { try await base.compressed().read(key: key) }
      #expect(error?.code == .unsupported)
    }
  }

  @Test("A value beyond the limit throws .valueTooLarge, and the previous one is kept")
  func limit() async throws {
    let engine = base.compressed(maximumValueSize: 1_000)
    try await engine.write(Data(count: 1_000), key: key)
    for work in [
      { try await engine.write(Data(count: 1_001), key: key) },
      { try await engine.apply([.removeAll, .write(Data(count: 1_001), key: key)]) },
      { try await engine.withTransaction { [key] in try $0.write(Data(count: 1_001), key: key) } },
    ] as [() async throws -> Void] {
      let error = await #expect(throws: StorageError.self) { try await work() }
      #expect(error?.code == .valueTooLarge)
    }
    #expect(try await engine.read(key: key) == Data(count: 1_000))
    // Another program may write a larger value.
    try await base.compressed().write(Data(count: 2_000), key: key)
    let error = await #expect(throws: StorageError.self) { try await engine.read(key: key) }
    #expect(error?.code == .corrupted)
  }

  @Test(
    "A corrupted value throws .corrupted from every read, and allocates no memory for the size it claims"
  )
  func corruption() async throws {
    let engine = base.compressed()
    try await engine.write(Self.text, key: key)
    let stored = try #require(try await base.read(key: key))
    var corrupted: [Data] = [Data(), Data([0xFF]), stored.prefix(1), stored.prefix(9), Data("text".utf8)]
    // Claims a size of 2^62 or 2^64 - 1 bytes, and one byte more and less than the true size.
    for size in [UInt64(1) << 62, UInt64.max, UInt64(Self.text.count) + 1, UInt64(Self.text.count) - 1] {
      var other = stored
      other.replaceSubrange(1..<9, with: withUnsafeBytes(of: size.littleEndian) { Data($0) })
      corrupted.append(other)
    }
    for count in stride(from: 1, to: stored.count, by: 7) { corrupted.append(stored.prefix(count)) }
    for index in stored.indices {
      for bit in 0..<8 {
        var other = stored
        other[index] ^= 1 << bit
        corrupted.append(other)
      }
    }
    corrupted.append(stored + [0])
    for value in corrupted {
      try await base.write(Data(value), key: key)
      let ways: [() async throws -> Data?] = [
        { try await engine.read(key: key) }, { try await engine.read(keys: [key]).first },
        { try await engine.readAllEntries().first?.data },
        { try await engine.scan(.all, limit: nil).first?.data },
        { try await engine.withTransaction { [key] in try $0.read(key: key) } },
        {
          try await engine.verify()
          return Self.text
        },
      ]
      for way in ways {
        do {
          // A flag of the format that does not affect the result may change.
          #expect(try await way() == Self.text)
        } catch let error as StorageError {
          #expect(error.code == .corrupted)
        }
      }
    }
  }

  @Test("A store keeps its items compressed, and reads them after the database is reopened")
  func store() async throws {
    struct Page: Codable, Sendable, Identifiable, Equatable {
      let id: String
      let text: String
    }
    let directory = try TemporaryDirectory()
    let page = Page(id: "1", text: String(decoding: Self.text, as: UTF8.self))
    do {
      let engine = try SQLiteStorageEngine(directory: .init(url: directory.url)).compressed()
      let pages = try await Store<Page>(storage: engine)
      try await pages.insert(page)
      try await engine.close()
    }
    let engine = try SQLiteStorageEngine(directory: .init(url: directory.url)).compressed()
    let pages = try await Store<Page>(storage: engine)
    #expect(await pages.items == [page])
    #expect(try await engine.base.readAllData()[0].count < 1_000)
  }
}
