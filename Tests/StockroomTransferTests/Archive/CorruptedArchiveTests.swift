import Foundation
import StockroomCore
import StockroomKitSupport
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Corrupted archives") struct CorruptedArchiveTests {
  /// The number of corruptions, by default or from `STOCKROOM_CORRUPTED_ARCHIVES`.
  private static let count =
    ProcessInfo.processInfo.environment["STOCKROOM_CORRUPTED_ARCHIVES"].flatMap { Int($0) }
    ?? TestRun.count(120, exhaustive: 4_000)

  private let place: TemporaryDirectory
  private var file: URL { place.appending("archive") }

  init() throws { place = try TemporaryDirectory() }

  /// An archive of several blocks, some of which are not compressed.
  private func archive(seed: UInt64 = 3) async throws -> Data {
    let engine = MemoryStorageEngine()
    var random = SeededRandom(seed: seed)
    for number in 0..<40 {
      try await engine.write(random.bytes(random.next(upTo: 2_000)), key: key("small \(number)"))
    }
    try await engine.write(Data(repeating: 1, count: 3_000_000 + random.next(upTo: 1_000)), key: key("large"))
    try await engine.write(random.bytes(4_000), key: key("last"))
    try await engine.write(Data(repeating: 2, count: 2_000_000), key: key("very last"))
    try await engine.dump(to: file, replacing: true)
    return try Data(contentsOf: file)
  }

  /// The ranges of the header, of each block and of the trailer.
  private func parts(of archive: Data) -> [Range<Int>] {
    var parts = [0..<28]
    while archive.count - (parts.last?.upperBound ?? 0) > 44 {
      let start = parts.last?.upperBound ?? 0
      let size = archive[start + 20..<start + 24].reversed().reduce(0) { $0 << 8 | Int($1) }
      parts.append(start..<start + 24 + size + 4)
    }
    return parts + [(parts.last?.upperBound ?? 0)..<archive.count]
  }

  /// Expects that an archive of these bytes is refused, and that nothing is restored from it.
  private func expectRefusal(_ bytes: Data, _ comment: String) async throws {
    try bytes.write(to: file)
    let engine = MemoryStorageEngine()
    do {
      // Accepts values of any size.
      try await engine.restore(from: file, maximumValueSize: .max)
      Issue.record("An archive was restored that is corrupted: \(comment)")
    } catch let error as StorageError {
      #expect(error.code == .corrupted || error.code == .unsupported, "\(comment): \(error)")
    }
    #expect(try await engine.keyCount() == 0, "\(comment)")
  }

  @Test("No archive with flipped bits, without a part or with one twice, elsewhere or behind it is restored")
  func corruptions() async throws {
    let whole = try await archive()
    let other = try await archive(seed: 4)
    let (parts, otherParts) = (parts(of: whole), parts(of: other))
    #expect(parts.count > 5)
    var random = SeededRandom(seed: 11)
    for number in 0..<Self.count {
      var bytes = whole
      let (start, end) = (random.next(upTo: whole.count), random.next(upTo: whole.count))
      let range = min(start, end)..<max(start, end)
      let (first, second) = (random.next(upTo: parts.count), random.next(upTo: parts.count))
      switch number % 10 {
      case 0: bytes[start] ^= 1 << UInt8(random.next(upTo: 8))
      case 1: bytes = whole[..<start]
      case 2: bytes.replaceSubrange(range, with: random.bytes(range.count))
      case 3: bytes.removeSubrange(range)
      case 4: bytes.insert(contentsOf: whole[range], at: end)
      case 5: bytes.append(random.bytes(1 + random.next(upTo: 100)))
      case 6: bytes.removeSubrange(parts[first])
      case 7: bytes.insert(contentsOf: whole[parts[first]], at: parts[second].lowerBound)
      case 8:
        var pieces = parts.map { whole[$0] }
        pieces.swapAt(first, second)
        bytes = Data(pieces.joined())
      default:
        // Whole blocks of another archive in the same place.
        guard otherParts.indices.contains(first) else { continue }
        bytes.replaceSubrange(parts[first], with: other[otherParts[first]])
      }
      if bytes == whole { continue }
      try await expectRefusal(bytes, "corruption \(number)")
    }
  }

  @Test(
    "An archive that is truncated at any byte of its header, of the head of a block or of its end is refused")
  func truncations() async throws {
    let whole = try await archive()
    let edges = parts(of: whole).dropFirst().flatMap {
      [$0.lowerBound - 5, $0.lowerBound, $0.lowerBound + 24]
    }
    for size in Array(0..<60) + edges + Array(whole.count - 60..<whole.count) {
      try await expectRefusal(whole[..<size], "cut off at \(size)")
    }
  }

  @Test("Random bytes, and random bytes behind a valid header, are refused")
  func noise() async throws {
    let header = try await archive()[..<28]
    var random = SeededRandom(seed: 5)
    for number in 0..<Self.count / 4 {
      let noise = random.bytes(random.next(upTo: 5_000))
      try await expectRefusal(number % 2 == 0 ? noise : header + noise, "noise \(number)")
    }
  }

  @Test("A block with right checksums, and hostile lengths, keys and counts, is refused")
  func hostile() async throws {
    let header = try await archive()[..<28]
    let entry: (UInt16, UInt64, Data) -> Data = { keySize, size, rest in
      little(keySize) + little(size) + little(Int64.min) + little(Int64.max) + rest
    }
    let contents: [Data] = [
      entry(0, 0, Data()), entry(512, 0, Data(count: 512)), entry(.max, 0, Data(count: 70_000)),
      entry(1, 0, Data([0xFF])), entry(2, 0, Data([0xC0, 0x80])), entry(1, 1, Data("k".utf8)),
      entry(1, 0, Data("k".utf8)) + Data([1]), Data([1]), entry(1, 1 << 29, Data("k".utf8)),
      entry(1, 1 << 40, Data("k".utf8)), entry(1, .max, Data("k".utf8)),
      entry(1, 1 << 63 - 1, Data("k".utf8)), entry(26, 0, Data("stockroom: unfinished copy".utf8)),
    ]
    for (number, contents) in contents.enumerated() {
      try await expectRefusal(sealed(header, contents, entries: 1), "contents \(number)")
    }
    try await expectRefusal(
      sealed(header, entry(1, 0, Data("k".utf8)), entries: 2), "another count of entries")
    let block = header + little(UInt32(0x4B4C_4253)) + little(UInt32(1)) + little(UInt64(0))
    for (size, stored) in [(0, 0), (1, 2), (1 << 20 + 1, 100), (UInt32.max, UInt32.max), (1 << 20, 1 << 20)]
      as [(UInt32, UInt32)]
    {
      try await expectRefusal(block + little(size) + little(stored) + Data(count: 200), "\(size), \(stored)")
    }
  }

  @Test("A value larger than allowed is refused before anything is written")
  func largeValues() async throws {
    _ = try await archive()
    let engine = MemoryStorageEngine()
    await expectError(.valueTooLarge) { try await engine.restore(from: file, maximumValueSize: 2_999_999) }
    #expect(try await engine.keyCount() == 0)
    try await engine.restore(from: file, maximumValueSize: 3_001_000)
    #expect(try await engine.keyCount() == 43)
  }

  @Test("Another version of the format, and a file that is no archive, are named as such")
  func versions() async throws {
    var whole = try await archive()
    whole[8] = 2
    try whole.write(to: file)
    await expectError(.unsupported) { try await Archive.verify(file) }
    try Data("SQLite format 3\0 and so on, for longer than a header".utf8).write(to: file)
    await expectError(.unsupported) { try await Archive.verify(file) }
    await expectError(.unsupported) { try await Archive.verify(place.url) }
    await expectError(.io) { try await Archive.verify(place.appending("absent")) }
  }

  /// An archive with one block that is not compressed, and right checksums.
  private func sealed(_ header: Data, _ contents: Data, entries: UInt64) -> Data {
    var block = little(UInt32(0x4B4C_4253)) + little(UInt32(0)) + little(UInt64(0))
    block += little(UInt32(contents.count)) + little(UInt32(contents.count)) + contents
    block += little(CRC32C.checksum(Array(block)))
    var end = little(UInt32(0x444E_4553)) + little(UInt32(0)) + little(UInt64(1)) + little(entries)
    end += little(UInt64(max(0, contents.count - 26))) + little(CRC32C.checksum(Array(contents)))
    end += little(checksumOfWhole(header + block + end))
    end += little(CRC32C.checksum(Array(end)))
    return header + block + end
  }

  /// CRC-32 with zlib's polynomial, bit by bit.
  private func checksumOfWhole(_ bytes: Data) -> UInt32 {
    var remainder = UInt32.max
    for byte in bytes {
      remainder ^= UInt32(byte)
      for _ in 0..<8 { remainder = remainder & 1 == 0 ? remainder >> 1 : remainder >> 1 ^ 0xEDB8_8320 }
    }
    return ~remainder
  }
}

private func little<Number: FixedWidthInteger>(_ number: Number) -> Data {
  withUnsafeBytes(of: number.littleEndian) { Data($0) }
}
