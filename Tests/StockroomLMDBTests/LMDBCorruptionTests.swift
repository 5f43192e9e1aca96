import Foundation
import StockroomCore
import TestFixtures
import StockroomKitSupport
import StockroomLMDB
import Testing

/// Rules O6 and F2: opening looks at little, and what is found later is an error and no signal.
@Suite("Corrupted pages of LMDB")
struct LMDBCorruptionTests {
  private static let page = 4_096

  /// A closed database of three levels, with large values and free pages.
  private func filled() async throws -> TemporaryDirectory {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<5_000).map { (key($0), value($0, count: 200)) })
    for number in 0..<5 { try await engine.write(value(number, count: 20_000), key: key(10_000 + number)) }
    try await engine.remove(keys: (0..<500).map { key(10 * $0) })
    try await engine.close()
    return place
  }

  @Test("Corruption behind the root pages lets the engine open, and verify() finds it")
  func foundLater() async throws {
    let place = try await filled()
    var bytes = try Data(contentsOf: place.dataFile)
    // Also those that are free by now.
    for start in stride(from: 2 * Self.page, to: bytes.count, by: Self.page) {
      let page = start..<start + Self.page
      guard bytes[start + 10] == 2, bytes[page].range(of: Data(key(2_501).value.utf8)) != nil else {
        continue
      }
      bytes.replaceSubrange(page, with: Data(count: Self.page))
    }
    try bytes.write(to: place.dataFile)
    let engine = try place.engine()
    #expect(await code { try await engine.verify() } == .corrupted)
    #expect(await code { _ = try await engine.read(key: key(2_501)) } == .corrupted)
    #expect(await code { _ = try await engine.readAllData() } == .corrupted)
    #expect(await code { try await engine.write(value(1), key: key(2_501)) } == .corrupted)
    #expect(await code { try await engine.remove(key: key(2_501)) } == .corrupted)
    #expect(await code { try await engine.removeAllData() } == .corrupted)
    #expect(await code { _ = try place.engine(verifiesOnOpening: true) } == .corrupted)
    #expect(try await engine.read(key: key(4_999)) == value(4_999, count: 200))
    try await engine.write(value(1), key: key(4_999))
    #expect(try await engine.read(key: key(4_999)) == value(1))
  }

  @Test(
    "A number of entries that cannot be is corruption, and takes no memory",
    arguments: [1 << 40, 1 << 56, Int.max])
  func impossibleCount(count: Int) async throws {
    let place = try await filled()
    var bytes = try Data(contentsOf: place.dataFile)
    // The record of the tree follows its name; its number of entries is 32 bytes behind its beginning.
    var start = 0
    while let name = bytes[start...].range(of: Data("entries".utf8)) {
      withUnsafeBytes(of: count.littleEndian) {
        bytes.replaceSubrange(name.upperBound + 32..<name.upperBound + 40, with: $0)
      }
      start = name.upperBound
    }
    try bytes.write(to: place.dataFile)
    #expect(await code { _ = try await place.engine().readAllData() } == .corrupted)
  }

  @Test("A sound database passes verify(), also while it is written")
  func sound() async throws {
    let place = try await filled()
    let engine = try place.engine()
    try await engine.verify()
    async let writes: Void = {
      for number in 0..<50 { try await engine.write(value(number, count: 5_000), key: key(number)) }
    }()
    for _ in 0..<5 { try await engine.verify() }
    try await writes
    try await engine.verify()
    try await engine.close()
    #expect(await code { try await engine.verify() } == .closed)
  }

  @Test(
    "Whatever is done to a page, calls return what is there or throw, and the process does not trap",
    arguments: 0..<2
  )
  func anywhere(part: Int) async throws {
    let place = try await filled()
    await #expect(processExitsWith: .success) { [path = place.url.path as String, part = part as Int] in
      let file = URL(filePath: path).appending(path: "data.mdb")
      let whole = try Data(contentsOf: file)
      var random = SeededRandom(seed: UInt64(part))
      for round in 0..<24 {
        var bytes = whole
        for _ in 0...random.next(upTo: 3) {
          let start = 4_096 * (2 + random.next(upTo: bytes.count / 4_096 - 2))
          switch round % 4 {
          case 0: bytes.replaceSubrange(start..<start + 4_096, with: Data(count: 4_096))
          case 1: bytes.replaceSubrange(start..<start + 4_096, with: random.bytes(4_096))
          // Where the header, the offsets and the nodes are.
          case 2: bytes[start + random.next(upTo: 64)] ^= UInt8(1 + random.next(upTo: 255))
          default: bytes[start + random.next(upTo: 4_096)] ^= UInt8(1 + random.next(upTo: 255))
          }
        }
        try bytes.write(to: file)
        let codes: [StorageError.Code?] = await [
          code {
            _ = try LMDBStorageEngine(
              directory: .init(url: URL(filePath: path)), verifiesOnOpening: true)
          },
          code {
            let engine = try LMDBStorageEngine(
              directory: .init(url: URL(filePath: path)), durability: .process)
            _ = await code { _ = try await engine.readAllEntries() }
            _ = await code { _ = try await engine.scan(.prefix("key/00002"), limit: 30) }
            for number in stride(from: round, to: 5_000, by: 397) {
              let found = await code { _ = try await engine.read(key: key(number)) }
              try #require(found == nil || found == .corrupted)
              let written = await code {
                try await engine.write(value(round, count: 10 * round), key: key(number))
              }
              try #require(written == nil || written == .corrupted)
              let removed = await code { try await engine.remove(keys: (number..<number + 40).map(key)) }
              try #require(removed == nil || removed == .corrupted)
            }
            let removed = await code { try await engine.removeAllData() }
            try #require(removed == nil || removed == .corrupted)
            try await engine.close()
          },
        ]
        for code in codes { try #require(code == nil || code == .corrupted || code == .unsupported) }
      }
    }
  }
}
