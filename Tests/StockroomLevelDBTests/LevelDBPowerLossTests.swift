import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

@Suite("LevelDB: logs that were not synced")
struct LevelDBPowerLossTests {
  /// A database that was not closed. Its log holds batches of exactly one block each: batch N has the entries
  /// "N/a" and "N/b".
  private struct Unclosed {
    let original: TemporaryDirectory
    let engine: LevelDBStorageEngine
    let log: String
    let count: Int

    static let blockSize = 32768

    init(_ durability: Durability, count: Int) async throws {
      self.count = count
      original = try TemporaryDirectory()
      // The log of a second session, so that there is a table too.
      try await original.open(durability: durability).close()
      engine = try original.open(durability: durability)
      log = try #require(
        FileManager.default.contentsOfDirectory(atPath: original.database.path)
          .filter { $0.hasSuffix(".log") }.max())
      func size() throws -> Int { try Data(contentsOf: original.database.appending(path: log)).count }
      func write(_ number: Int, _ length: Int) async throws {
        let name = String(format: "%03d", number)
        try await engine.write([
          (CacheKey(verbatim: name + "/a"), Data("a".utf8)), (CacheKey(verbatim: name + "/b"), noise(length)),
        ])
      }
      // Finds the size of a value that fills a block by trial.
      let probe = try TemporaryDirectory()
      let trial = try probe.open()
      try await trial.write([
        (CacheKey(verbatim: "000/a"), Data("a".utf8)), (CacheKey(verbatim: "000/b"), noise(30_000)),
      ])
      let trialLog = try #require(
        FileManager.default.contentsOfDirectory(atPath: probe.database.path).first { $0.hasSuffix(".log") })
      let used = try Data(contentsOf: probe.database.appending(path: trialLog)).count
      let length = 30_000 + Self.blockSize - used
      for number in 0..<count { try await write(number, length) }
      try #require(try size() == count * Self.blockSize)
    }

    /// A copy of the current files with other logs.
    func copy(logs: [Data]) throws -> TemporaryDirectory {
      let copy = try TemporaryDirectory()
      try FileManager.default.copyItem(at: original.database, to: copy.database)
      let number = try #require(Int(log.dropLast(4)))
      for (index, bytes) in logs.enumerated() {
        try bytes.write(to: copy.database.appending(path: String(format: "%06d.log", number + index)))
      }
      return copy
    }

    var bytes: Data { get throws { try Data(contentsOf: original.database.appending(path: log)) } }
  }

  /// Expects a prefix of the batches, each complete, and returns its length.
  private func batches(in directory: TemporaryDirectory, _ durability: Durability) async throws -> Int {
    let engine = try directory.open(durability: durability)
    let keys = try await engine.allKeys().map(\.value)
    let count = keys.count / 2
    #expect(keys == (0..<count).flatMap { [String(format: "%03d/a", $0), String(format: "%03d/b", $0)] })
    #expect(try await engine.keyCount() == keys.count)
    try await engine.verify()
    try await engine.write(Data("new".utf8), key: CacheKey(verbatim: "new"))
    try await engine.close()
    let again = try directory.open(durability: durability)
    #expect(try await again.keyCount() == keys.count + 1)
    return count
  }

  @Test(
    "At .process, a log with a page that was not written loses the batches from there on, and no others")
  func lostPage() async throws {
    let unclosed = try await Unclosed(.process, count: 6)
    let bytes = try unclosed.bytes
    for page in 0..<(bytes.count / 4096) {
      var corrupted = bytes
      corrupted.resetBytes(in: (page * 4096)..<((page + 1) * 4096))
      #expect(try await batches(in: unclosed.copy(logs: [corrupted]), .process) == page / 8)
    }
    for garbage in [0xA5, 0xFF] as [UInt8] {
      var corrupted = bytes
      corrupted.replaceSubrange(70_000..<70_512, with: Data(repeating: garbage, count: 512))
      #expect(try await batches(in: unclosed.copy(logs: [corrupted]), .process) == 2)
    }
  }

  @Test("At .process, batches after a gap between two logs are lost too")
  func lostPageBetweenLogs() async throws {
    let unclosed = try await Unclosed(.process, count: 6)
    let bytes = try unclosed.bytes
    let (older, newer) = (Data(bytes.prefix(3 * 32768)), Data(bytes.suffix(3 * 32768)))
    #expect(try await batches(in: unclosed.copy(logs: [older, newer]), .process) == 6)
    var corrupted = older
    corrupted.resetBytes(in: 40_000..<44_096)
    #expect(try await batches(in: unclosed.copy(logs: [corrupted, newer]), .process) == 1)
    #expect(try await batches(in: unclosed.copy(logs: [older.prefix(2 * 32768), newer]), .process) == 2)
    #expect(try await batches(in: unclosed.copy(logs: [older.prefix(50_000), newer]), .process) == 1)
    #expect(try await batches(in: unclosed.copy(logs: [Data(), newer]), .process) == 0)
    #expect(try await batches(in: unclosed.copy(logs: [older, Data(newer.dropFirst(32768))]), .process) == 3)
  }

  @Test("At .process, of a new database only the first table may have reached the disk")
  func onlyFirstTable() async throws {
    let (place, other) = (try TemporaryDirectory(), try TemporaryDirectory())
    let engine = try place.open(durability: .process)
    let copy = try TemporaryDirectory()
    try FileManager.default.copyItem(at: place.database, to: copy.database)
    let full = try other.open(durability: .process)
    for number in 0..<3 { try await full.write(noise(5 << 20), key: CacheKey(verbatim: "\(number)")) }
    try await full.close()
    let names = try FileManager.default.contentsOfDirectory(atPath: other.database.path)
    let table = try #require(names.filter { $0.hasSuffix(".ldb") }.min())
    try FileManager.default.copyItem(
      at: other.database.appending(path: table), to: copy.database.appending(path: table))
    let again = try copy.open(durability: .process)
    #expect(try await again.keyCount() == 0)
    try await again.write(Data([1]), key: CacheKey(verbatim: "a"))
    try await again.close()
    try await expectEntries([CacheKey(verbatim: "a"): Data([1])], in: copy.open(durability: .process))
    try await engine.close()
  }

  @Test("At .full, acknowledged batches are kept, and an unacknowledged one is dropped")
  func synced() async throws {
    let unclosed = try await Unclosed(.full, count: 6)
    let bytes = try unclosed.bytes
    let (older, newer) = (Data(bytes.prefix(3 * 32768)), Data(bytes.suffix(3 * 32768)))
    for page in 0..<8 {
      var corrupted = bytes
      corrupted.resetBytes(in: (40 + page) * 4096..<(41 + page) * 4096)
      #expect(try await batches(in: unclosed.copy(logs: [corrupted]), .full) == 5)
      corrupted = bytes
      corrupted.resetBytes(in: (20 + page) * 4096..<(21 + page) * 4096)
      let copy = try unclosed.copy(logs: [corrupted])
      #expect { try copy.open() } throws: { ($0 as? StorageError)?.code == .corrupted }
    }
    for logs in [[older.prefix(2 * 32768), newer], [Data(), newer], [older.prefix(50_000), newer]] {
      let copy = try unclosed.copy(logs: logs)
      #expect { try copy.open() } throws: { ($0 as? StorageError)?.code == .corrupted }
    }
    #expect(try await batches(in: unclosed.copy(logs: [older, newer]), .full) == 6)
  }

  @Test(
    "An opening that is interrupted while it writes the contents of two logs loses nothing",
    arguments: Durability.allCases)
  func interruptedRestoring(_ durability: Durability) async throws {
    let unclosed = try await Unclosed(durability, count: 6)
    let bytes = try unclosed.bytes
    let logs = [Data(bytes.prefix(3 * 32768)), Data(bytes.suffix(3 * 32768))]
    let opened = try unclosed.copy(logs: logs)
    let engine = try opened.open(durability: durability)
    let log = try #require(
      FileManager.default.contentsOfDirectory(atPath: opened.database.path).filter { $0.hasSuffix(".log") }
        .max())
    let restored = try Data(contentsOf: opened.database.appending(path: log))
    try #require(restored.count > 5 * 32768)
    for count in stride(from: 10_000, to: restored.count, by: 20_000) + [restored.count - 1, restored.count] {
      let copy = try TemporaryDirectory()
      try FileManager.default.copyItem(at: opened.database, to: copy.database)
      try restored.prefix(count).write(to: copy.database.appending(path: log))
      let first = try #require(Int(unclosed.log.dropLast(".log".count)))
      for (index, bytes) in logs.enumerated() {
        let kept = "STOCKROOM.kept-" + String(format: "%06d", first + index)
        try bytes.write(to: copy.database.appending(path: kept))
      }
      #expect(try await batches(in: copy, durability) == 6, "after \(count) of \(restored.count) bytes")
    }
    try await engine.close()
  }

  @Test(
    "A torn batch whose value contains a LevelDB log is dropped like any other, and earlier batches are kept")
  func logInValue() async throws {
    let original = try TemporaryDirectory()
    let engine = try original.open(durability: .full)
    let log = try #require(
      FileManager.default.contentsOfDirectory(atPath: original.database.path).first { $0.hasSuffix(".log") })
    try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
    let record = try Data(contentsOf: original.database.appending(path: log))
    let value = Data(repeatElement(record, count: 20_000 / record.count).joined())
    try await engine.write(value, key: CacheKey(verbatim: "log"))
    let whole = try Data(contentsOf: original.database.appending(path: log))
    for count in [whole.count - 1, whole.count - 100, whole.count - 15_000] {
      let copy = try TemporaryDirectory()
      try FileManager.default.copyItem(at: original.database, to: copy.database)
      try whole.prefix(count).write(to: copy.database.appending(path: log))
      let opened = try copy.open(durability: .full)
      #expect(try await opened.allKeys().map(\.value) == ["a"])
      try await opened.close()
    }
    // Also the first batch of a log, before which nothing records LevelDB's sequence number.
    let next = try TemporaryDirectory()
    try await next.open(durability: .full).close()
    let other = try next.open(durability: .full)
    let second = try #require(
      FileManager.default.contentsOfDirectory(atPath: next.database.path).filter { $0.hasSuffix(".log") }
        .max())
    for number in 0..<50_000 where number % 1000 == 0 {
      try await other.write(
        (0..<1000).map { (CacheKey(verbatim: "\(number + $0)"), Data("a".utf8)) })
    }
    try await other.close()
    let last = try next.open(durability: .full)
    let third = try #require(
      FileManager.default.contentsOfDirectory(atPath: next.database.path).filter { $0.hasSuffix(".log") }
        .max())
    #expect(second != third)
    try await last.write(value, key: CacheKey(verbatim: "log"))
    let torn = try TemporaryDirectory()
    try FileManager.default.copyItem(at: next.database, to: torn.database)
    let path = torn.database.appending(path: third)
    try Data(contentsOf: path).dropLast(100).write(to: path)
    #expect(try await torn.open(durability: .full).keyCount() == 50_000)
  }

  @Test("The durability of the previous engine decides, not that of the next one")
  func changedDurability() async throws {
    let unclosed = try await Unclosed(.process, count: 4)
    var corrupted = try unclosed.bytes
    corrupted.resetBytes(in: 40_960..<45_056)
    let copy = try unclosed.copy(logs: [corrupted])
    #expect(try await batches(in: copy, .full) == 1)
    let strict = try await Unclosed(.full, count: 4)
    corrupted = try strict.bytes
    corrupted.resetBytes(in: 40_960..<45_056)
    let other = try strict.copy(logs: [corrupted])
    #expect { try other.open(durability: .process) } throws: { ($0 as? StorageError)?.code == .corrupted }
  }
}
