import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Synchronization
import Testing

@Suite("LevelDB: verification, long reads and space")
struct LevelDBHousekeepingTests {
  let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test("verify() finds a flipped bit in a table that opening does not read")
  func corruptedTable() async throws {
    let engine = try directory.open()
    try await engine.write((0..<2000).map { (CacheKey(verbatim: "\($0)"), noise(200)) })
    try await engine.close()
    let again = try directory.open()
    try await again.verify()
    try await again.close()
    let table = try #require(
      FileManager.default.contentsOfDirectory(at: directory.database, includingPropertiesForKeys: nil)
        .first { $0.pathExtension == "ldb" })
    var bytes = try Data(contentsOf: table)
    bytes[bytes.count / 2] ^= 1
    try bytes.write(to: table)
    let corrupted = try directory.open()
    #expect(try await corrupted.keyCount() == 2000)
    await #expect { try await corrupted.verify() } throws: { ($0 as? StorageError)?.code == .corrupted }
  }

  @Test("Space that a process had reserved when it died is free once the database is opened")
  func reservedSpace() async throws {
    let engine = try directory.open()
    try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
    try await engine.close()
    let reserved = directory.database.appending(path: "STOCKROOM.room")
    try noise(1 << 16).write(to: reserved)
    let again = try directory.open()
    #expect(!FileManager.default.fileExists(atPath: reserved.path))
    #expect(try await again.keyCount() == 1)
  }

  @Test(
    "Opening removes a file that a process had not renamed when it died",
    arguments: [
      "MANIFEST-000099.new", "CURRENT.new", "STOCKROOM.closed.new", "STOCKROOM.kept-000003.new",
      "000099.log.new",
    ],
    [false, true])
  func unrenamedFile(name: String, isKnownToMarker: Bool) async throws {
    let engine = try directory.open()
    try await engine.write(Data("a".utf8), key: CacheKey(verbatim: "a"))
    let file = directory.database.appending(path: name)
    let marker = directory.database.appending(path: "STOCKROOM.closed")
    // Earlier versions closed the database while it had such a file.
    if isKnownToMarker { try noise(1_000).write(to: file) }
    try await engine.close()
    if !isKnownToMarker {
      try noise(1_000).write(to: file)
      try FileManager.default.removeItem(at: marker)
    }
    for _ in 0..<2 {
      let again = try directory.open()
      #expect(!FileManager.default.fileExists(atPath: file.path))
      #expect(try await again.keyCount() == 1)
      try await again.close()
    }
  }

  @Test("verify() passes while the database is being written")
  func verifyingUnderLoad() async throws {
    let engine = try directory.open()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<4 {
        group.addTask {
          for round in 0..<6 {
            try await engine.write((0..<50).map { (CacheKey(verbatim: "\(task)/\($0)"), noise(9000)) })
            if round == 3 { try await engine.removeAllData() }
            try await engine.verify()
          }
        }
      }
      try await group.waitForAll()
    }
    try await engine.verify()
  }

  @Test("A write succeeds while every processor reads all entries in a loop")
  func readsGiveWay() async throws {
    let engine = try directory.open()
    try await engine.write((0..<20_000).map { (CacheKey(verbatim: "\($0)"), Data([1])) })
    let isWritten = Flag()
    let readers = ProcessInfo.processInfo.activeProcessorCount
    // So that a failing test ends. On a busy machine the write may get no processor for seconds.
    let end = ContinuousClock.now + .seconds(60)
    try await withThrowingTaskGroup(of: Bool.self) { group in
      for _ in 0..<readers {
        group.addTask {
          while ContinuousClock.now < end {
            _ = try await engine.readAllEntries()
            if isWritten.isSet.load(ordering: .relaxed) { return true }
          }
          return false
        }
      }
      group.addTask {
        try await engine.write(Data([2]), key: CacheKey(verbatim: "new"))
        isWritten.isSet.store(true, ordering: .relaxed)
        return true
      }
      let results = try await group.reduce(into: []) { $0.append($1) }
      #expect(!results.contains(false))
    }
  }

  @Test("Removing all entries frees the disk space while the engine is open")
  func spaceAfterRemovingAll() async throws {
    let engine = try directory.open()
    for number in 0..<6 {
      try await engine.write((0..<100).map { (CacheKey(verbatim: "\(number)/\($0)"), noise(50_000)) })
    }
    #expect(try size() > 20 << 20)
    try await engine.removeAllData()
    #expect(try await engine.keyCount() == 0)
    try await engine.write(Data([1]), key: CacheKey(verbatim: "after"))
    let end = ContinuousClock.now + .seconds(120)
    while try size() > 1 << 20, ContinuousClock.now < end {
      try await Task.sleep(for: .milliseconds(1))
    }
    #expect(try size() <= 1 << 20)
    try await engine.close()
    let again = try directory.open()
    #expect(try await again.allKeys().map(\.value) == ["after"])
  }

  @Test("Entries written while space is freed survive a crash")
  func crashWhileGivingSpaceBack() async throws {
    let engine = try directory.open(durability: .process)
    for number in 0..<6 {
      try await engine.write((0..<100).map { (CacheKey(verbatim: "\(number)/\($0)"), noise(50_000)) })
    }
    try await engine.removeAllData()
    for number in 0..<60 {
      try await engine.write(Data([1]), key: CacheKey(verbatim: String(format: "after/%03d", number)))
      guard number % 6 == 5 else { continue }
      let copy = try TemporaryDirectory()
      // Unlike a crash, a copy of a directory that is being written may miss files.
      do {
        try FileManager.default.copyItem(at: directory.database, to: copy.database)
      } catch { continue }
      guard try LevelDBHousekeepingTests.isSame(copy.database, directory.database) else { continue }
      let again = try copy.open(durability: .process)
      #expect(try await again.keyCount() == number + 1)
    }
  }

  private final class Flag: Sendable {
    let isSet = Atomic(false)
  }

  /// Whether the files have the same names and sizes, except for LevelDB's lock and log of messages.
  private static func isSame(_ one: URL, _ other: URL) throws -> Bool {
    func sizes(_ url: URL) throws -> [String: Int] {
      try FileManager.default.contentsOfDirectory(atPath: url.path).reduce(into: [:]) { sizes, name in
        guard !name.hasPrefix("LO") else { return }
        sizes[name] = try? Data(contentsOf: url.appending(path: name)).count
      }
    }
    return try sizes(one) == sizes(other)
  }

  private func size() throws -> Int {
    try FileManager.default.contentsOfDirectory(at: directory.database, includingPropertiesForKeys: nil)
      .reduce(0) { $0 + ((try? Data(contentsOf: $1).count) ?? 0) }
  }
}
