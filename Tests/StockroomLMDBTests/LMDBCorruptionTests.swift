import Foundation
import StockroomCore
import TestFixtures
import StockroomKitSupport
import StockroomLMDB
import Testing

/// Rules O6 and F2: opening reads few pages, and corruption found later throws instead of raising a signal.
@Suite("Corrupted pages of LMDB")
struct LMDBCorruptionTests {
  private static let page = 4_096

  /// A closed database with a tree of three levels, large values and free pages.
  private func filled() async throws -> TemporaryDirectory {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<5_000).map { (key($0), value($0, count: 200)) })
    for number in 0..<5 { try await engine.write(value(number, count: 20_000), key: key(10_000 + number)) }
    try await engine.remove(keys: (0..<500).map { key(10 * $0) })
    try await engine.close()
    return place
  }

  @Test("Corruption below the root pages lets the engine open, and verify() finds it")
  func foundLater() async throws {
    let place = try await filled()
    var bytes = try Data(contentsOf: place.dataFile)
    // Some of these pages are free.
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
    "An impossible number of entries is corruption, and allocates no memory",
    arguments: [1 << 40, 1 << 56, Int.max])
  func impossibleCount(count: Int) async throws {
    let place = try await filled()
    var bytes = try Data(contentsOf: place.dataFile)
    // The record of the tree follows its name; the number of entries is at offset 32.
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

  @Test("A corrupted last-page number does not truncate the file", arguments: [false, true])
  func lastPage(verifying: Bool) async throws {
    let place = try await filled()
    let engine = try place.engine()
    // The roots move to pages that have been freed.
    for number in 0..<20 { try await engine.write(value(number), key: key(1)) }
    try await engine.close()
    let sound = try Data(contentsOf: place.dataFile)
    var bytes = sound
    func number(at offset: Int) -> UInt64 {
      sound[offset..<offset + 8].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
    // The newer of the two meta pages. The transaction number follows the number of the last page.
    let record = [0, Self.page].max { number(at: $0 + 144) < number(at: $1 + 144) } ?? 0
    let last = number(at: record + 136)
    let greatestRoot = [80, 128].map { number(at: record + $0) }.filter { $0 < last }.max() ?? 2
    try #require(Int(last) == sound.count / Self.page - 1 && greatestRoot + 4 < last)
    withUnsafeBytes(of: (last - 4).littleEndian) {
      bytes.replaceSubrange(record + 136..<record + 144, with: $0)
    }
    try bytes.write(to: place.dataFile)
    // Whether it opens and can be read is not tested here.
    if let engine = try? place.engine(verifiesOnOpening: verifying) {
      try? await engine.withTransaction { _ = try $0.read(key: key(1)) }
      try? await engine.close()
    }
    #expect(try Data(contentsOf: place.dataFile).prefix(bytes.count) == bytes)
    try sound.write(to: place.dataFile)
    try await place.engine(verifiesOnOpening: true).verify()
  }

  @Test("An intact database passes verify(), even while it is being written")
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
    "A removal that reaches a corrupted page on the way to the next leaf throws, and does not trap",
    .ownThreads)
  func nextLeaf() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    // A tree of at least four levels: few keys of this length fit into a page.
    let keys = (0..<1_000).map { CacheKey(verbatim: String(1_000 + $0) + String(repeating: "k", count: 496)) }
    try await engine.write(keys.map { ($0, Data([1])) })
    try await engine.close()

    var file = try Data(contentsOf: place.dataFile)
    let rootNumber = try #require(RawPage.rootOfEntries(in: file))
    let root = RawPage(rootNumber, of: file)
    let next = RawPage(root.child(1), of: file)
    let corrupted = next.child(0)
    try #require(!root.isLeaf && !next.isLeaf && !RawPage(corrupted, of: file).isLeaf)
    var leaf = RawPage(root.child(0), of: file)
    while !leaf.isLeaf { leaf = RawPage(leaf.child(leaf.count - 1), of: file) }
    let lastKey = String(decoding: leaf.key(leaf.count - 1), as: UTF8.self)
    let start = corrupted * Self.page
    file.replaceSubrange(start..<start + Self.page, with: Data(count: Self.page))
    try file.write(to: place.dataFile)

    await #expect(processExitsWith: .success) {
      [path = place.url.path as String, key = lastKey as String] in
      let engine = try LMDBStorageEngine(directory: .init(url: URL(filePath: path)), durability: .process)
      let removed = await code { try await engine.remove(key: CacheKey(verbatim: key)) }
      try #require(removed == .corrupted)
      try #require(try await engine.read(key: CacheKey(verbatim: key)) == Data([1]))
      try await engine.close()
    }
  }

  @Test(
    "However a page is corrupted, calls return the stored entries or throw, and the process does not trap",
    .ownThreads,
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
          // The part of the page with the header, the offsets and the nodes.
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

/// A page of 4,096 bytes in LMDB's layout.
private struct RawPage {
  private let bytes: [UInt8]

  init(_ number: Int, of file: Data) { bytes = Array(file[4_096 * number..<4_096 * (number + 1)]) }

  /// The number of the root page of the tree of entries.
  static func rootOfEntries(in file: Data) -> Int? {
    let metas = [RawPage(0, of: file), RawPage(1, of: file)]
    // The meta page of the later transaction.
    guard let meta = metas.max(by: { $0.number(144, 8) < $1.number(144, 8) }) else { return nil }
    let main = RawPage(meta.number(128, 8), of: file)
    let name = Array("entries".utf8)
    guard let index = (0..<main.count).first(where: { main.key($0) == name }) else { return nil }
    return main.number(main.offset(index) + 8 + name.count + 40, 8)
  }

  var isLeaf: Bool { bytes[10] & 2 != 0 }
  var count: Int { (number(12, 2) - 16) / 2 }

  func key(_ index: Int) -> [UInt8] {
    let start = offset(index) + 8
    return Array(bytes[start..<start + number(offset(index) + 6, 2)])
  }

  func child(_ index: Int) -> Int { number(offset(index), 6) }

  private func offset(_ index: Int) -> Int { number(16 + 2 * index, 2) }

  private func number(_ offset: Int, _ count: Int) -> Int {
    bytes[offset..<offset + count].reversed().reduce(0) { $0 << 8 | Int($1) }
  }
}
