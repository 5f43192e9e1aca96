import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import TestFixtures
import Testing

/// An import leaves every byte, timestamp and file of its source unchanged.
struct UntouchedSourceTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  /// Imports, expects that nothing in the directory has changed, and returns the entries by key.
  private func importUnchanged(_ source: some ImportSource, in url: URL) async throws -> [String: String] {
    let before = try DirectorySnapshot(url)
    let engine = MemoryStorageEngine()
    try await source.import(into: engine, keys: .asStored)
    #expect(try DirectorySnapshot(url) == before)
    return Dictionary(
      uniqueKeysWithValues: try await engine.readAllDataAndKeys().map {
        ($0.key.value, String(decoding: $0.data, as: UTF8.self))
      })
  }

  @Test("A database stays as it is, also one in a directory that can only be read")
  func plain() async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.insert("a", Data("1".utf8))
    database.close()
    let path = place.url.path(percentEncoded: false)
    try FileManager.default.setAttributes([.posixPermissions: 0o500], ofItemAtPath: path)
    defer { try? FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: path) }
    #expect(try await importUnchanged(BodegaSQLiteSource(at: place.url), in: place.url) == ["a": "1"])
  }

  @Test(
    "What is only in the write-ahead log of a database in use is imported, and the files stay as they are")
  func writeAheadLog() async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.execute("PRAGMA journal_mode = WAL")
    try database.insert("a", Data("1".utf8))
    try database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    try database.insert("b", Data("2".utf8))
    #expect(
      try await importUnchanged(BodegaSQLiteSource(at: place.url), in: place.url) == ["a": "1", "b": "2"])
    // Closed only now, because closing moves the log into the database.
    database.close()
  }

  @Test(
    "What a crash left in the rollback journal is rolled back in the copy, and the files stay as they are")
  func hotJournal() async throws {
    let crashed = place.beside("crashed")
    try FileManager.default.createDirectory(at: crashed, withIntermediateDirectories: true)
    try makeHotJournal(in: crashed)
    let imported = try await importUnchanged(BodegaSQLiteSource(at: crashed), in: crashed)
    #expect(imported.count == 50)
    #expect(imported.values.allSatisfy { $0.hasPrefix("old") })
  }

  @Test("A journal that would make SQLite remove another file is refused")
  func superJournal() async throws {
    let crashed = place.beside("crashed")
    try FileManager.default.createDirectory(at: crashed, withIntermediateDirectories: true)
    try makeHotJournal(in: crashed)
    let victim = place.beside("victim")
    try Data("precious".utf8).write(to: victim)
    let name = Data(victim.path(percentEncoded: false).utf8)
    let journal = crashed.appending(path: "data.sqlite3-journal")
    let sum = name.reduce(UInt32(0)) { $0 &+ UInt32($1) }
    var bytes = try Data(contentsOf: journal)
    bytes.append(contentsOf: [0, 0, 0, 0] + name)
    for number in [UInt32(name.count), sum] {
      withUnsafeBytes(of: number.bigEndian) { bytes.append(contentsOf: $0) }
    }
    bytes.append(contentsOf: [0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7])
    try bytes.write(to: journal)
    try await expectRefusal(of: BodegaSQLiteSource(at: crashed), .unsupported, "data.sqlite3-journal")
    #expect(try Data(contentsOf: victim) == Data("precious".utf8))
  }

  @Test("A database reached through a symbolic link is read with the log beside the file itself")
  func symbolicLink() async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.execute("PRAGMA journal_mode = WAL")
    try database.insert("b", Data("2".utf8))
    let link = place.beside("link.sqlite3")
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: database.url)
    #expect(try await importUnchanged(BodegaSQLiteSource(at: link), in: place.url) == ["b": "2"])
    database.close()
  }

  @Test("Files, property lists and databases of caches stay as they are")
  func others() async throws {
    try Data("1".utf8).write(to: place.appending("a"))
    #expect(try await importUnchanged(BodegaDiskSource(at: place.url), in: place.url) == ["a": "1"])
    let list = place.appending("list.plist")
    try PropertyListSerialization.data(
      fromPropertyList: ["flag": Data(#"{"value":true}"#.utf8)], format: .binary, options: 0
    ).write(to: list)
    #expect(try await importUnchanged(UserDefaultsSource(at: list), in: place.url) == ["flag": "true"])
    let cache = try LegacyDatabase(.persistentCache, in: place.url)
    try cache.execute(
      "INSERT INTO cache_storage VALUES (?, ?, ?)", .text("k"), .blob(Data("v".utf8)), .number(1e9))
    cache.close()
    #expect(try await importUnchanged(PersistentCacheSource(at: cache.url), in: place.url) == ["k": "v"])
  }

  @Test("Nothing is left in the temporary directory, after a success and after an error")
  func temporaryFiles() async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.insert("a", Data("only in this test".utf8))
    try await BodegaSQLiteSource(at: place.url).import(into: MemoryStorageEngine())
    try database.execute("UPDATE data SET updatedAt = 'never'")
    database.close()
    try await expectRefusal(of: BodegaSQLiteSource(at: place.url), .corrupted)
    #expect(try temporaryCopies(containing: "only in this test") == [])
  }

  /// Creates a database with the journal that a process leaves when it dies after a transaction has written pages.
  private func makeHotJournal(in crashed: URL) throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    let padding = String(repeating: ".", count: 4_000)
    for number in 0..<50 { try database.insert("\(number)", Data("old\(padding)".utf8)) }
    try database.execute("PRAGMA cache_size = 5")
    try database.execute("BEGIN")
    try database.execute("UPDATE data SET value = ?", .blob(Data("new\(padding)".utf8)))
    for name in ["data.sqlite3", "data.sqlite3-journal"] {
      try FileManager.default.copyItem(at: place.appending(name), to: crashed.appending(path: name))
    }
    let bytes = try Data(contentsOf: crashed.appending(path: "data.sqlite3"))
    #expect(bytes.range(of: Data("new....".utf8)) != nil, "The transaction has written nothing yet.")
    database.close()
  }
}
