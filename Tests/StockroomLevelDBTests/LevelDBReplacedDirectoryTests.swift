import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomLevelDB

@Suite("LevelDB: a directory that changes under an open engine")
struct LevelDBReplacedDirectoryTests {
  let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test(
    "An engine whose directory was deleted or moved throws .io and leaves the new database there unchanged",
    arguments: [false, true], Durability.allCases)
  func replaced(isMoved: Bool, durability: Durability) async throws {
    let first = try directory.open(durability: durability)
    try await first.write(Data("old".utf8), key: CacheKey(verbatim: "key"))
    if isMoved {
      try FileManager.default.moveItem(at: directory.database, to: directory.url.appending(path: "moved"))
    } else {
      try FileManager.default.removeItem(at: directory.database)
    }
    let second = try directory.open(durability: durability)
    let entries = (0..<4).map { (key: CacheKey(verbatim: "second/\($0)"), data: noise(3 << 20)) }
    for entry in entries { try await second.write(entry.data, key: entry.key) }

    for number in 0..<4 {
      await expectIO { try await first.write(noise(3 << 20), key: CacheKey(verbatim: "first/\(number)")) }
    }
    await expectIO { try await first.removeAllData() }
    await expectIO { try await first.read(key: CacheKey(verbatim: "key")) }
    await expectIO { try await first.readAllData() }
    await expectIO { try await first.scan(.all, limit: 1) }
    await expectIO { try await first.keyCount() }
    try await first.close()

    #expect(try await second.readAllDataAndKeys().map(\.key) == entries.map(\.key))
    try await second.close()
    let third = try directory.open(durability: durability)
    #expect(try await third.readAllData() == entries.map(\.data))
    #expect(try await third.keyCount() == entries.count)
  }

  @Test("An engine whose directory was moved away and back continues with its entries")
  func movedBack() async throws {
    let key = CacheKey(verbatim: "key")
    let engine = try directory.open(durability: .full)
    try await engine.write(Data("one".utf8), key: key)
    let elsewhere = directory.url.appending(path: "elsewhere")
    try FileManager.default.moveItem(at: directory.database, to: elsewhere)
    await expectIO { try await engine.write(Data("two".utf8), key: key) }
    await expectIO { try await engine.readAllData() }
    try FileManager.default.moveItem(at: elsewhere, to: directory.database)
    #expect(try await engine.readAllData() == [Data("one".utf8)])
    try await engine.write(Data("three".utf8), key: key)
    try await engine.close()
    #expect(try await directory.open().readAllData() == [Data("three".utf8)])
  }

  @Test("A transaction whose body moved the directory is not acknowledged (rule C6)")
  func movedDuringTransaction() async throws {
    let key = CacheKey(verbatim: "key")
    let engine = try directory.open(durability: .full)
    try await engine.write(Data("one".utf8), key: key)
    let (database, elsewhere) = (directory.database, directory.url.appending(path: "elsewhere"))
    await expectIO {
      try await engine.withTransaction { transaction in
        try FileManager.default.moveItem(at: database, to: elsewhere)
        try transaction.write(Data("two".utf8), key: key)
      }
    }
    try FileManager.default.moveItem(at: elsewhere, to: database)
    #expect(try await engine.read(key: key) == Data("one".utf8))
    try await engine.close()
    #expect(try await directory.open().readAllData() == [Data("one".utf8)])
  }

  @Test(
    "A long read throws .io at its end if the directory was moved meanwhile, even if another replaced it")
  func movedDuringLongRead() async throws {
    let keys = (0..<3).map { CacheKey(verbatim: "\($0)") }
    let engine = try directory.open()
    for key in keys { try await engine.write(Data(key.value.utf8), key: key) }
    let (database, elsewhere) = (directory.database, directory.url.appending(path: "elsewhere"))
    let found = MutexProtected<[CacheKey]>([])
    await expectIO {
      try await engine.forEachEntry { entry in
        if entry.key == keys[1] {
          try FileManager.default.moveItem(at: database, to: elsewhere)
          try FileManager.default.copyItem(at: elsewhere, to: database)
        }
        found.withLock { $0.append(entry.key) }
      }
    }
    #expect(found.withLock { $0 } == keys)
    try FileManager.default.removeItem(at: database)
    try FileManager.default.moveItem(at: elsewhere, to: database)
    found.withLock { $0 = [] }
    try await engine.forEachEntry { entry in found.withLock { $0.append(entry.key) } }
    #expect(found.withLock { $0 } == keys)
    try await engine.close()
  }

  enum Change: CaseIterable { case removed, replaced }

  @Test(
    "An engine with a missing file throws .io from every write and every bulk read",
    arguments: ["CURRENT", "LOCK", "MANIFEST-", ".log", ".ldb"], Change.allCases)
  func missingFile(_ name: String, _ change: Change) async throws {
    for number in 0..<3 {
      let engine = try directory.open()
      try await engine.write(noise(5000), key: CacheKey(verbatim: "\(number)"))
      try await engine.close()
    }
    let engine = try directory.open()
    try await engine.write(noise(5000), key: CacheKey(verbatim: "last"))
    let file = try #require(
      FileManager.default.contentsOfDirectory(at: directory.database, includingPropertiesForKeys: nil)
        .filter { $0.lastPathComponent.hasPrefix(name) || $0.lastPathComponent.hasSuffix(name) }
        .max { $0.lastPathComponent < $1.lastPathComponent })
    // An identical copy does no harm; tables are never changed.
    if change == .replaced, name == ".ldb" || name == "CURRENT" { return }
    let bytes = try Data(contentsOf: file)
    try FileManager.default.removeItem(at: file)
    if change == .replaced { try bytes.write(to: file) }
    await expectIO(file) { try await engine.write(Data("new".utf8), key: CacheKey(verbatim: "new")) }
    await expectIO(file) { try await engine.readAllData() }
    await expectIO(file) { try await engine.allKeys() }
    try await engine.close()
  }

  @Test("Removing CURRENT during a batch creates no new database, and removes no table of the old one")
  func currentRemovedDuringWrite() async throws {
    // Repeated if the write has ended before the file is removed, as on a busy machine.
    while try await !removeCurrentDuringWrite() {}
  }

  /// Returns false if the write did not throw.
  private func removeCurrentDuringWrite() async throws -> Bool {
    let directory = try TemporaryDirectory()
    let engine = try directory.open()
    try await engine.write((0..<1000).map { (CacheKey(verbatim: "\($0)"), noise(100)) })
    try await engine.close()
    let again = try directory.open()
    try await again.write(Data("new".utf8), key: CacheKey(verbatim: "new"))
    let database = directory.database
    func tables() throws -> Set<String> {
      Set(try FileManager.default.contentsOfDirectory(atPath: database.path).filter { $0.hasSuffix(".ldb") })
    }
    let before = try tables()
    let log = try #require(
      FileManager.default.contentsOfDirectory(atPath: database.path).filter { $0.hasSuffix(".log") }.max())
    let current = database.appending(path: "CURRENT")
    let contents = try Data(contentsOf: current)
    let remover = try ThreadWork {
      // The write is in progress once a part of it is in the log.
      while try FileManager.default.attributesOfItem(atPath: database.appending(path: log).path)[.size]
        as? Int ?? 0
        < 1 << 20
      {
        sched_yield()
      }
      try FileManager.default.removeItem(at: current)
    }
    do {
      try await again.write(noise(64 << 20), key: CacheKey(verbatim: "long"))
      return false
    } catch { #expect(isIO(error, naming: database)) }
    try remover.value()
    func expectIO<Value>(_ body: () async throws -> Value) async {
      await #expect { _ = try await body() } throws: { isIO($0, naming: database) }
    }
    await expectIO { try await again.read(key: CacheKey(verbatim: "7")) }
    await expectIO { try await again.write(Data(), key: CacheKey(verbatim: "other")) }
    #expect(try tables().isSuperset(of: before))
    try contents.write(to: current)
    try await again.close()
    #expect(try await directory.open().keyCount() >= 1001)
    return true
  }

  @Test("Switching to a new manifest during a reopening does not count as a replacement")
  func switchedManifest() async throws {
    let engine = try directory.open()
    try await engine.write(noise(5000), key: CacheKey(verbatim: "a"))
    try await engine.close()
    let files = LevelDBFiles(
      directory: try FileDescriptor.openDirectory(atPath: directory.database.path), permissions: .owner)
    let monitor = try LevelDBDirectoryMonitor(files, below: directory.url.path)
    try monitor.begin()
    try monitor.check(nil)

    monitor.expectNewManifest()
    try await directory.open().close()
    try monitor.check(nil)
    try monitor.begin()
    try monitor.check(nil)
    try FileManager.default.removeItem(at: directory.database.appending(path: "CURRENT"))
    monitor.expectNewManifest()
    #expect(throws: StorageError.self) { try monitor.check(nil) }
  }

  @Test(
    "Truncating the log under an open engine makes the next write throw", arguments: Durability.allCases)
  func cutLog(_ durability: Durability) async throws {
    let engine = try directory.open(durability: durability)
    try await engine.write(noise(5000), key: CacheKey(verbatim: "a"))
    let name = try #require(
      FileManager.default.contentsOfDirectory(atPath: directory.database.path).first { $0.hasSuffix(".log") })
    #expect(truncate(directory.database.appending(path: name).path, 1000) == 0)
    await #expect(throws: StorageError.self) {
      try await engine.write(Data([1]), key: CacheKey(verbatim: "b"))
    }
  }

  @Test("Truncating tables under an open engine makes it throw, not trap")
  func cutTables() async throws {
    for number in 0..<3 {
      let engine = try directory.open()
      try await engine.write((0..<20).map { (CacheKey(verbatim: "\(number)/\($0)"), noise(5000)) })
      try await engine.close()
    }
    let engine = try directory.open()
    #expect(try await engine.readAllData().count == 60)
    for name in try FileManager.default.contentsOfDirectory(atPath: directory.database.path)
    where name.hasSuffix(".ldb") {
      #expect(truncate(directory.database.appending(path: name).path, 100) == 0)
    }
    await #expect(throws: StorageError.self) { try await engine.readAllData() }
    // Once the change has been detected, the other calls throw too.
    await #expect(throws: StorageError.self) { try await engine.read(key: CacheKey(verbatim: "1/1")) }
    await #expect(throws: StorageError.self) { try await engine.scan(.prefix("1/"), limit: 3) }
    await #expect(throws: StorageError.self) { try await engine.write(Data(), key: CacheKey(verbatim: "x")) }
    await #expect(throws: StorageError.self) { try await engine.readAllEntries() }
    await #expect(throws: StorageError.self) { try await engine.allKeys() }
    await #expect(throws: StorageError.self) { try await engine.scan(.all, limit: nil) }
    await #expect(throws: StorageError.self) { try await engine.verify() }
  }

  private func expectIO<Value>(_ file: URL? = nil, _ body: () async throws -> Value) async {
    await #expect { _ = try await body() } throws: { isIO($0, naming: file ?? directory.database) }
  }

  private func isIO(_ error: any Error, naming file: URL) -> Bool {
    guard let error = error as? StorageError, error.code == .io else { return false }
    return error.description.contains(file.path)
  }
}
