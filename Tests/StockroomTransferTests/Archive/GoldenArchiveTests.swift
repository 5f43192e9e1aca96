import Foundation
import StockroomCore
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

/// `STOCKROOM_WRITE_GOLDEN=1 swift test --filter "Golden archives"` rewrites the archive for a version with another
/// format.
@Suite("Golden archives") struct GoldenArchiveTests {
  private static let entries = [
    StorageEntry(
      key: key("zero bytes"), data: Data(), createdAt: date(800_000_000), updatedAt: date(800_000_001.5)),
    StorageEntry(
      key: key("\u{0}\u{7F}/../e\u{301}\u{E9}\u{1F40B}"), data: Data(0...255), createdAt: date(-0.25),
      updatedAt: date(0)),
    StorageEntry(
      key: key(String(repeating: "k", count: 511)), data: Data("long key".utf8),
      createdAt: date(800_000_000.123_456_7), updatedAt: date(800_000_000.123_456_7)),
    StorageEntry(
      key: key("larger than a block"),
      data: Data((0..<1_200_000).map { UInt8(truncatingIfNeeded: $0 / 5_000) }),
      createdAt: date(800_000_002), updatedAt: date(800_000_003)),
    StorageEntry(
      key: key("a"), data: Data("last".utf8), createdAt: date(800_000_004), updatedAt: date(800_000_004)),
  ]

  private static func date(_ seconds: Double) -> Date { Date(timeIntervalSinceReferenceDate: seconds) }

  @Test("The archive of format 1 is read completely, with times and order")
  func reading() async throws {
    let archive = try #require(Bundle.module.url(forResource: "Golden/format-1", withExtension: "archive"))
    let reader = try await ArchiveReader(archive)
    #expect(reader.summary.formatVersion == 1)
    #expect(reader.summary.isSnapshot)
    #expect(reader.summary.entryCount == Self.entries.count)
    #expect(reader.summary.createdAt > Self.date(785_000_000))
    #expect(try await reader.nextEntries() == Self.entries)
    #expect(try await reader.nextEntries() == nil)
    let engine = MemoryStorageEngine()
    try await engine.restore(from: archive)
    #expect(try await engine.readAllEntries().map(\.data) == Self.entries.map(\.data))
  }

  @Test("Writes the golden archive", .enabled(if: GoldenPlace.isWriting))
  func writing() async throws {
    let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    let engine = FixedEntriesEngine(base: MemoryStorageEngine(), entries: Self.entries)
    try await engine.dump(to: folder.appending(path: "Golden/format-1.archive"), replacing: true)
  }
}
