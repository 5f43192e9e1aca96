import StockroomCLevelDB
import Foundation
import StockroomCore
import TestFixtures
import StockroomKitSupport
import StockroomLevelDB
import Testing

@Suite("LevelDB: corruption")
struct LevelDBCorruptionTests {
  enum Corruption: String, CaseIterable {
    case flippedBit, zeros, cutOff, emptied, removed, appended
  }

  @Test(
    "After corruption anywhere in a closed database, reads return the right values or throw .corrupted",
    arguments: Corruption.allCases)
  func sweep(_ corruption: Corruption) async throws {
    let original = try TemporaryDirectory()
    let entries = try await fill(original)
    var random = SeededRandom(seed: UInt64(corruption.rawValue.utf8.reduce(7) { $0 * 31 + Int($1) }))
    let names = try FileManager.default.contentsOfDirectory(atPath: original.database.path)
      .filter { !$0.hasPrefix("LO") }.sorted()
    #expect(names.count { $0.hasSuffix(".ldb") } > 2)
    var outcomes: [String: Int] = [:]
    for name in names {
      let isWhole = corruption == .emptied || corruption == .removed
      for attempt in 0..<(isWhole ? 1 : 20) {
        let copy = try TemporaryDirectory()
        try FileManager.default.copyItem(at: original.database, to: copy.database)
        // Half of the attempts are near the end, where tables store the locations of their blocks.
        let range = attempt.isMultiple(of: 2) ? Int.max : 64
        try apply(corruption, on: copy.database.appending(path: name), within: range, &random)
        let outcome = try await outcome(on: copy, entries, isRemoval: corruption == .removed)
        outcomes["\(name) \(outcome)", default: 0] += 1
      }
    }
    #expect(outcomes.keys.contains { $0.hasSuffix("corrupted") })
  }

  @Test("A table with an invalid footer is refused before LevelDB reads it")
  func tableEnd() async throws {
    let original = try TemporaryDirectory()
    let entries = try await fill(original)
    let name = try #require(
      try FileManager.default.contentsOfDirectory(atPath: original.database.path).first {
        $0.hasSuffix(".ldb")
      })
    for byte in 0..<48 {
      for isClosed in [true, false] {
        let copy = try TemporaryDirectory()
        try FileManager.default.copyItem(at: original.database, to: copy.database)
        if !isClosed {
          try FileManager.default.removeItem(at: copy.database.appending(path: "STOCKROOM.closed"))
        }
        let file = copy.database.appending(path: name)
        var bytes = try Data(contentsOf: file)
        for position in (bytes.count - 48 + byte)..<min(bytes.count, bytes.count - 40 + byte) {
          bytes[position] = 0xFF
        }
        if bytes.count - 40 + byte < bytes.count { bytes[bytes.count - 40 + byte] = 0x3F }
        try bytes.write(to: file)
        _ = try await outcome(on: copy, entries, isRemoval: false)
      }
    }
  }

  @Test("After a crash an unfinished batch at the end of the log is dropped, and the others are kept")
  func tornLog() async throws {
    let original = try TemporaryDirectory()
    let engine = try original.open(durability: .full)
    var ends: [Int] = []
    let value = Data(repeating: 7, count: 5000)
    let log = try #require(
      try FileManager.default.contentsOfDirectory(atPath: original.database.path).first {
        $0.hasSuffix(".log")
      })
    for number in 0..<30 {
      try await engine.write(value, key: CacheKey(verbatim: "\(number)"))
      ends.append(
        try Data(contentsOf: original.database.appending(path: log)).count)
    }
    for cut in stride(from: 0, through: ends[29], by: 997) + ends {
      let copy = try TemporaryDirectory()
      try FileManager.default.copyItem(at: original.database, to: copy.database)
      let file = copy.database.appending(path: log)
      try Data(contentsOf: file).prefix(cut).write(to: file)
      let whole = ends.count { $0 <= cut }
      let again = try copy.open()
      #expect(try await again.allKeys().count == whole)
      #expect(try await again.keyCount() == whole)
      #expect(try await again.readAllEntries().map(\.key.value) == (0..<whole).map(String.init))
    }
    // The last batch is complete but unreadable, as after out-of-order writes of the disk.
    for garbage in [0, 0xA5] {
      let copy = try TemporaryDirectory()
      try FileManager.default.copyItem(at: original.database, to: copy.database)
      let file = copy.database.appending(path: log)
      let bytes = try Data(contentsOf: file)
      try (bytes.prefix(ends[28] + 20) + Data(repeating: UInt8(garbage), count: 3000)).write(to: file)
      #expect(try await copy.open().keyCount() == 29)
    }
    // A batch in the middle was acknowledged.
    let copy = try TemporaryDirectory()
    try FileManager.default.copyItem(at: original.database, to: copy.database)
    let file = copy.database.appending(path: log)
    var bytes = try Data(contentsOf: file)
    bytes[ends[10] + 100] ^= 1
    try bytes.write(to: file)
    #expect { try copy.open() } throws: { ($0 as? StorageError)?.code == .corrupted }
    _ = engine
  }

  @Test("A log that has been deleted is missed", arguments: Durability.allCases, [false, true])
  func deletedLog(_ durability: Durability, hasTables: Bool) async throws {
    let original = try TemporaryDirectory()
    if hasTables {
      let engine = try original.open(durability: durability)
      for number in 0..<3 { try await engine.write(noise(5 << 20), key: CacheKey(verbatim: "\(number)")) }
      try await engine.close()
    }
    let engine = try original.open(durability: durability)
    try await engine.write(Data([1]), key: CacheKey(verbatim: "a"))
    // As after the process was killed.
    let copy = try TemporaryDirectory()
    try FileManager.default.copyItem(at: original.database, to: copy.database)
    let logs = try FileManager.default.contentsOfDirectory(atPath: copy.database.path)
      .filter { $0.hasSuffix(".log") }
    #expect(!logs.isEmpty)
    for log in logs { try FileManager.default.removeItem(at: copy.database.appending(path: log)) }
    for _ in 0..<2 {
      #expect { try copy.open(durability: durability) } throws: {
        ($0 as? StorageError)?.code == .corrupted
      }
    }
    try await engine.close()
  }

  @Test(
    "Impossible metadata is corruption, even with correct LevelDB checksums",
    arguments: [
      [1, .max, 5, 5], [1, 5, .max, 5], [1, 5, 5, .max], [1, 6, 5, 5], [1, 1, 5, 5], [1, 0, 5, 5],
    ] as [[UInt64]])
  func impossibleMetadata(_ words: [UInt64]) async throws {
    let directory = try TemporaryDirectory()
    let engine = try directory.open()
    let keys = (0..<5).map { CacheKey(verbatim: "\($0)") }
    try await engine.write(keys.map { ($0, Data([1])) })
    try await engine.close()
    try putMetadata(words, in: directory)
    await #expect {
      let engine = try directory.open()
      _ = try await engine.readAllEntries()
      try await engine.write(Data([2]), key: CacheKey(verbatim: "new"))
      try await engine.remove(keys: keys)
    } throws: {
      ($0 as? StorageError)?.code == .corrupted
    }
  }

  @Test("An impossibly large count allocates no memory")
  func exaggeratingMetadata() async throws {
    let directory = try TemporaryDirectory()
    let engine = try directory.open()
    try await engine.write(Data([1]), key: CacheKey(verbatim: "a"))
    try await engine.close()
    try putMetadata([1, 1 << 60, 1 << 61, 5], in: directory)
    #expect(try await directory.open().readAllEntries().count == 1)
  }

  @Test(
    "A backup throws .corrupted for an entry whose sequence number is out of range",
    arguments: [(-1, true), (0, false), (.min / 2, false)] as [(beyond: Int64, isSound: Bool)])
  func outOfOrder(_ place: (beyond: Int64, isSound: Bool)) async throws {
    let directory = try TemporaryDirectory()
    let engine = try directory.open()
    try await engine.write(Data([1]), key: CacheKey(verbatim: "a"))
    try await engine.close()
    let sequence = UInt64(bitPattern: .max / 2 &+ place.beyond)
    // The timestamps of an entry, and its sequence number.
    try put([0, 0, sequence], Array("b".utf8), in: directory)
    try putMetadata([1, 2, 2, 5], in: directory)
    let reopened = try directory.open()
    let backup = FileManager.Directory(url: directory.beside("backup"))
    if place.isSound {
      try await reopened.backUp(to: backup)
      let copy = try LevelDBStorageEngine(directory: backup)
      #expect(try await copy.readAllEntries().map(\.key.value) == ["a", "b"])
      try await copy.close()
    } else {
      let error = await #expect(throws: StorageError.self) { try await reopened.backUp(to: backup) }
      #expect(error?.code == .corrupted)
      #expect(try FileManager.default.contentsOfDirectory(atPath: directory.parent.path) == ["place"])
    }
    try await reopened.close()
  }

  private func putMetadata(_ words: [UInt64], in directory: TemporaryDirectory) throws {
    try put(words, [0xFF] + Array("metadata".utf8), in: directory)
  }

  /// Writes a record like LevelDB itself, with correct checksums.
  private func put(_ words: [UInt64], _ key: [UInt8], in directory: TemporaryDirectory) throws {
    // The marker of a clean shutdown would reveal the change.
    let marker = directory.database.appending(path: "STOCKROOM.closed").path
    if FileManager.default.fileExists(atPath: marker) { try FileManager.default.removeItem(atPath: marker) }
    let options = leveldb_options_create()
    defer { leveldb_options_destroy(options) }
    var message: UnsafeMutablePointer<CChar>?
    let database = try #require(leveldb_open(options, directory.database.path, &message))
    defer { leveldb_close(database) }
    let value = words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) } }
    let writeOptions = leveldb_writeoptions_create()
    defer { leveldb_writeoptions_destroy(writeOptions) }
    key.withUnsafeBytes { key in
      value.withUnsafeBytes { value in
        leveldb_put(
          database, writeOptions, key.bindMemory(to: CChar.self).baseAddress, key.count,
          value.bindMemory(to: CChar.self).baseAddress, value.count, &message)
      }
    }
    #expect(message == nil)
  }

  private func fill(_ directory: TemporaryDirectory) async throws -> [CacheKey: Data] {
    var entries: [CacheKey: Data] = [:]
    var random = SeededRandom(seed: 1)
    // Each opening turns the previous log into a table.
    for round in 0..<4 {
      let engine = try directory.open()
      for number in 0..<100 {
        let key = CacheKey(verbatim: "key/\(number * 7 % 100 + round * 50)")
        let data = Data(
          (0..<Int.random(in: 0..<600, using: &random)).map { _ in UInt8(truncatingIfNeeded: random.next()) })
        try await engine.write(data, key: key)
        entries[key] = data
      }
      try await engine.close()
    }
    return entries
  }

  private func apply(_ corruption: Corruption, on file: URL, within range: Int, _ random: inout SeededRandom)
    throws
  {
    var bytes = try Data(contentsOf: file)
    let place = Int.random(in: max(0, bytes.count - range)..<max(1, bytes.count), using: &random)
    switch corruption {
    case .flippedBit: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
    case .zeros: bytes.resetBytes(in: place..<min(place + 64, bytes.count))
    case .cutOff: bytes = bytes.prefix(place)
    case .emptied: bytes = Data()
    case .removed: return try FileManager.default.removeItem(at: file)
    case .appended: bytes.append(bytes.prefix(place))
    }
    try bytes.write(to: file)
  }

  /// Returns "right" or "corrupted"; records an issue for anything else.
  private func outcome(
    on directory: TemporaryDirectory, _ entries: [CacheKey: Data], isRemoval: Bool
  ) async throws -> String {
    let engine: LevelDBStorageEngine
    do {
      engine = try directory.open()
    } catch let error as StorageError {
      // Without its identity file the directory is not recognized as Stockroom's.
      #expect(error.code == .corrupted || isRemoval && error.code == .unsupported, "\(error)")
      return error.code.name
    }
    var outcome = "right"
    func expectCorrupted(_ error: any Error) {
      #expect((error as? StorageError)?.code == .corrupted, "\(error)")
      outcome = "corrupted"
    }
    for (key, data) in entries {
      do { #expect(try await engine.read(key: key) == data) } catch { expectCorrupted(error) }
    }
    do {
      let all = try await engine.readAllDataAndKeys()
      let isRight = Dictionary(uniqueKeysWithValues: all.map { ($0.key, $0.data) }) == entries
      #expect(isRight, "\(all.count) of \(entries.count) entries")
      let scanned = try await engine.scan(.prefix("key/1"), limit: 100)
      #expect(
        scanned.map(\.key) == Array(entries.keys.filter { $0.value.hasPrefix("key/1") }.sorted().prefix(100)))
    } catch { expectCorrupted(error) }
    do { #expect(try await engine.keyCount() == entries.count) } catch { expectCorrupted(error) }
    do {
      try await engine.write(Data("new".utf8), key: CacheKey(verbatim: "key/1"))
    } catch { expectCorrupted(error) }
    return outcome
  }
}
