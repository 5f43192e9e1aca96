import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

struct HostileSourceTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  private var database: URL { place.appending("data.sqlite3") }

  @Test(
    "What is no database is refused with its path, and nothing is written", arguments: ["", "text", "SQLite"])
  func noDatabase(_ content: String) async throws {
    try Data(content.utf8).write(to: database)
    try await expectRefusal(of: BodegaSQLiteSource(at: database), .corrupted, "data.sqlite3")
    try await expectRefusal(of: PersistentCacheSource(at: database), .corrupted, "data.sqlite3")
  }

  @Test("A property list that is nested deeper than the stack is refused, in a file and in a cache")
  func nestedLists() async throws {
    let head = #"<?xml version="1.0"?><plist version="1.0">"#
    // Some with markup that could hide the nesting.
    for (beginning, hidden) in [
      ("", ""), ("", "<!-- </array> -->"), ("", "<![CDATA[</array>]]>"), ("<array><?>", ""),
      ("", "<dict><key/></key>"),
    ] {
      let list = head + beginning + String(repeating: "<array>" + hidden, count: 100_000)
      try await expectRefusedList(Data(list.utf8), asCached: String.self)
    }
  }

  enum ShortList: CaseIterable { case endless, doubling, large, overlong }

  @Test(
    "A short binary property list without end, or of many megabytes, is refused, in a file and in a cache",
    arguments: ShortList.allCases)
  func shortList(_ list: ShortList) async throws {
    let key = Data([0x55] + Array("value".utf8))
    let objects: [Data]
    switch list {
    case .endless:
      // A dictionary that is its own value.
      objects = [Data([0xD1, 1, 0]), key]
    case .doubling:
      // Each level doubles the size.
      objects = [Data([0xD1, 1, 2]), key] + (3...UInt8(60)).map { Data([0xA2, $0, $0]) } + [key]
    case .large:
      let names = (0..<100).map { Data([0x52, UInt8(ascii: "0") + $0 / 10, UInt8(ascii: "0") + $0 % 10]) }
      let megabyte = Data([0x4F, 0x12, 0, 0x10, 0, 0]) + Data(count: 1 << 20)
      let references = Data([0xDF, 0x10, 100] + (1...100) + Array(repeating: 101, count: 100))
      objects = [references] + names + [megabyte]
    case .overlong: objects = [Data([0xDF, 0x13] + Array(repeating: 0xFF, count: 8))]
    }
    try await expectRefusedList(binaryList(objects), asCached: Nested.self)
  }

  private func expectRefusedList<Value: Codable & Sendable>(
    _ list: Data, asCached: Value.Type, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    let cache = try LegacyDatabase(.persistentCache, in: place.url)
    try cache.execute("INSERT OR REPLACE INTO cache_storage VALUES ('key', ?, 1600000000)", .blob(list))
    cache.close()
    let error = await #expect(throws: StorageError.self, sourceLocation: sourceLocation) {
      try await PersistentCacheSource(at: place.url).import(
        into: PersistentCache<String, Value>(storage: nil)
      ) { $0 }
    }
    #expect(error?.code == .decodingFailed, sourceLocation: sourceLocation)

    let file = place.appending("evil.plist")
    try list.write(to: file)
    try await expectRefusal(of: UserDefaultsSource(at: file), .corrupted, "evil.plist")
  }

  private final class Nested: Codable, Sendable {
    let value: Nested?
  }

  /// A binary property list of up to 256 objects, of which the first contains the others.
  private func binaryList(_ objects: [Data]) -> Data {
    var (list, offsets) = (Data("bplist00".utf8), Data())
    for object in objects {
      for shift in [24, 16, 8, 0] { offsets.append(UInt8(truncatingIfNeeded: list.count >> shift)) }
      list += object
    }
    func number(_ value: Int) -> Data {
      Data((0..<8).map { UInt8(truncatingIfNeeded: value >> (56 - 8 * $0)) })
    }
    return list + offsets + [0, 0, 0, 0, 0, 0, 4, 1] + number(objects.count) + number(0) + number(list.count)
  }

  @Test("What is nested too deep in a value is not searched, and hides no identifier beside it")
  func nestedValues() async throws {
    // Up to the maximum nesting that is searched, and beyond it.
    for (depth, isFound) in [(64, true), (65, false), (500, false)] {
      let (open, close) = (String(repeating: "[", count: depth), String(repeating: "]", count: depth))
      let directory = place.appending("\(depth)")
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: false)
      try Data("\(open)\"deep\"\(close)".utf8).write(
        to: directory.appending(path: CacheKey("deep").value))
      try Data("{\"id\":\"flat\",\"more\":\(open)1\(close)}".utf8).write(
        to: directory.appending(path: CacheKey("flat").value))
      let engine = MemoryStorageEngine()
      let report = try await BodegaDiskSource(at: directory).import(into: engine)
      #expect(report.unresolvedHashes == (isFound ? 0 : 1))
      #expect(try await engine.keyExists(CacheKey(verbatim: "flat")))
      #expect(try await engine.keyExists(CacheKey(verbatim: "deep")) == isFound)
    }
  }

  @Test("A path without a file, a directory without a source, and one with several databases are refused")
  func paths() async throws {
    try await expectRefusal(of: BodegaSQLiteSource(at: place.appending("missing")), .io, "missing")
    try await expectRefusal(of: BodegaDiskSource(at: place.appending("missing")), .io, "missing")
    try await expectRefusal(of: UserDefaultsSource(at: place.appending("missing")), .io, "missing")
    try await expectRefusal(of: BodegaSQLiteSource(at: place.url), .unsupported, "no database")
    try await expectRefusal(of: BodegaDiskSource(at: place.url), .unsupported, "no files")
    for name in ["a.sqlite3", "b.sqlite3"] { try Data().write(to: place.appending(name)) }
    try await expectRefusal(of: BodegaSQLiteSource(at: place.url), .unsupported, "a.sqlite3, b.sqlite3")
    try await expectRefusal(of: BodegaDiskSource(at: place.appending("a.sqlite3")), .unsupported, "a.sqlite3")
    try await expectRefusal(of: UserDefaultsSource(at: place.url), .unsupported)
  }

  @Test(
    "Another program's database is refused",
    arguments: [
      "CREATE TABLE data (key TEXT PRIMARY KEY, value BLOB)",
      "CREATE TABLE data (key, value, createdAt, updatedAt, other)",
      "CREATE VIEW data AS SELECT 'k' AS key, x'00' AS value, '2020-01-01T00:00:00' AS createdAt, 1 AS updatedAt",
      "CREATE TABLE cache_storage (key TEXT, data BLOB)",
    ])
  func otherPrograms(_ sql: String) async throws {
    let other = try LegacyDatabase(at: database)
    try other.execute(sql)
    other.close()
    try await expectRefusal(of: BodegaSQLiteSource(at: database), .unsupported, "data.sqlite3")
    try await expectRefusal(of: PersistentCacheSource(at: database), .unsupported, "data.sqlite3")
  }

  @Test("Of several tables like Bodega's one has to be named")
  func severalTables() async throws {
    let several = try LegacyDatabase(.bodega, in: place.url)
    try several.execute(LegacyDatabase.Layout.bodegaWithoutDefaults.creation)
    try several.insert("a", Data())
    several.close()
    try await expectRefusal(of: BodegaSQLiteSource(at: database), .unsupported, "data, notes")
    try await expectRefusal(of: BodegaSQLiteSource(at: database, table: "other"), .unsupported, "other")
    #expect(try await BodegaSQLiteSource(at: database, table: "data").open().count == 1)
    #expect(try await BodegaSQLiteSource(at: database, table: "notes").open().count == 0)
  }

  @Test("A table whose name has quotation marks is imported", arguments: ["a\"b", "a\"\u{301}b"])
  func quotationMarks(table: String) async throws {
    let quoted = try LegacyDatabase(at: database)
    try quoted.execute(
      "CREATE TABLE \"\(table.replacingScalar("\"", with: "\"\""))\" (key, value, createdAt, updatedAt)")
    quoted.close()
    #expect(try await BodegaSQLiteSource(at: database).open().count == 0)
  }

  @Test(
    "A row with a value of the wrong type is refused with its number, after 2,000 sound ones, and nothing is written",
    arguments: [
      "(x'00', x'00', '2020-01-01T00:00:00', '2020-01-01T00:00:00')",
      "(NULL, x'00', '2020-01-01T00:00:00', '2020-01-01T00:00:00')",
      "('k', 'text', '2020-01-01T00:00:00', '2020-01-01T00:00:00')",
      "('k', NULL, '2020-01-01T00:00:00', '2020-01-01T00:00:00')",
      "('k', x'00', NULL, '2020-01-01T00:00:00')", "('k', x'00', '2020-01-01T00:00:00', 1e300)",
      "(CAST(x'FF' AS TEXT), x'00', '2020-01-01T00:00:00', '2020-01-01T00:00:00')",
    ])
  func wrongTypes(_ row: String) async throws {
    let loose = try LegacyDatabase(at: database)
    try loose.execute("CREATE TABLE data (key, value, createdAt, updatedAt)")
    try loose.execute(
      """
      INSERT INTO data WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)
      SELECT 'key ' || i, x'01', '2019-01-01T00:00:00', '2019-01-01T00:00:00' FROM n
      """)
    try loose.execute("INSERT INTO data VALUES \(row)")
    loose.close()
    try await expectRefusal(of: BodegaSQLiteSource(at: database), .corrupted, "data.sqlite3", "row 2001")
  }

  @Test(
    "The numbers in a cache's times are read only where they are times",
    arguments: ["'soon'", "NULL", "-1", "1e300", "9e999"])
  func wrongNumbers(_ time: String) async throws {
    let cache = try LegacyDatabase(.persistentCache, in: place.url)
    try cache.execute("INSERT INTO cache_storage VALUES ('k', x'00', \(time))")
    cache.close()
    try await expectRefusal(of: PersistentCacheSource(at: cache.url), .corrupted, "row 1", "time")
  }

  @Test("Corruption anywhere in a database yields the stored value or an error with the path, never a trap")
  func corruption() async throws {
    let sound = try LegacyDatabase(.bodega, in: place.url)
    try sound.execute("BEGIN")
    for number in 0..<60 { try sound.insert("key \(number)", Data("value \(number)".utf8)) }
    try sound.execute("COMMIT")
    sound.close()
    let bytes = try Data(contentsOf: database)
    var refused = 0
    for (number, offset) in stride(from: 0, to: bytes.count, by: 97).enumerated() {
      var corrupted = bytes
      for index in offset..<min(offset + 24, bytes.count) {
        corrupted[index] = UInt8(truncatingIfNeeded: number &* 31 &+ index)
      }
      try corrupted.write(to: database)
      let engine = RecordingEngine()
      do {
        try await BodegaSQLiteSource(at: database).import(into: engine, keys: .asStored)
      } catch let error as StorageError {
        refused += 1
        #expect([.corrupted, .unsupported, .invalidKey].contains(error.code), "\(error)")
        #expect(error.code == .invalidKey || error.description.contains("data.sqlite3"), "\(error)")
        #expect(engine.entries.isEmpty, "\(error)")
      }
    }
    #expect(refused > 30)
    try bytes.prefix(bytes.count / 2).write(to: database)
    try await expectRefusal(of: BodegaSQLiteSource(at: database), .corrupted, "data.sqlite3")
  }

  @Test(
    "A symbolic link, a pipe and a file beyond a gigabyte among the files are refused",
    arguments: ["link", "pipe", "huge"])
  func planted(_ name: String) async throws {
    try Data("1".utf8).write(to: place.appending("a"))
    let file = place.appending(name)
    let path = file.path(percentEncoded: false)
    switch name {
    case "link":
      try FileManager.default.createSymbolicLink(at: file, withDestinationURL: place.appending("a"))
    case "pipe": #expect(mkfifo(path, 0o600) == 0)
    default:
      try Data().write(to: file)
      #expect(truncate(path, 1 << 40) == 0)
    }
    let code: StorageError.Code = name == "huge" ? .valueTooLarge : .unsupported
    try await expectRefusal(of: BodegaDiskSource(at: place.url), code, "/\(name)")
  }

  @Test("A pipe in the place of a database, its log or a property list is refused, and not waited for")
  func pipes() async throws {
    let pipe = place.appending("pipe.sqlite3")
    #expect(mkfifo(pipe.path(percentEncoded: false), 0o600) == 0)
    try await expectRefusal(of: BodegaSQLiteSource(at: pipe), .unsupported, "pipe.sqlite3")
    try await expectRefusal(of: UserDefaultsSource(at: pipe), .unsupported, "pipe.sqlite3")
    let sound = try LegacyDatabase(.bodega, in: place.url)
    sound.close()
    #expect(mkfifo(database.path(percentEncoded: false) + "-wal", 0o600) == 0)
    try await expectRefusal(of: BodegaSQLiteSource(at: database), .unsupported, "data.sqlite3-wal")
  }

  @Test("Directories and the files of the system are left out, and reported")
  func omissions() async throws {
    try Data("1".utf8).write(to: place.appending("a"))
    for name in [".DS_Store", "._a"] { try Data().write(to: place.appending(name)) }
    try FileManager.default.createDirectory(at: place.appending("sub"), withIntermediateDirectories: true)
    try Data().write(to: place.appending("sub/b"))
    let engine = RecordingEngine()
    let report = try await BodegaDiskSource(at: place.url).import(into: engine)
    #expect(engine.entries.map(\.key.value) == ["a"])
    #expect(report.omissions.count == 3)
    for (omission, name) in zip(report.omissions, ["._a", ".DS_Store", "sub"].sorted()) {
      #expect(omission.contains(name))
    }
  }

  @Test("A file that changes after the source was opened makes its entry throw")
  func changedFile() async throws {
    try Data("1".utf8).write(to: place.appending("a"))
    let content = try await BodegaDiskSource(at: place.url).open()
    try Data("22".utf8).write(to: place.appending("a"))
    let error = #expect(throws: StorageError.self) { try content.entry(at: 0) }
    #expect(error?.code == .locked)
  }

  @Test("A symbolic link in a directory is not followed out of it")
  func linkInDirectory() async throws {
    let (outside, inside) = (place.appending("outside"), place.appending("inside"))
    for url in [outside, inside] {
      try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }
    let database = try LegacyDatabase(.bodega, in: outside)
    database.close()
    try FileManager.default.createSymbolicLink(
      at: inside.appending(path: "data.sqlite3"), withDestinationURL: database.url)
    try await expectRefusal(of: BodegaSQLiteSource(at: inside), .unsupported, "data.sqlite3 is not a file")
    let error = await #expect(throws: StorageError.self) { try await ImportSourceKind.detect(at: inside) }
    #expect(error?.code == .unsupported)
    // A link that is itself the given path is followed.
    let link = inside.appending(path: "data.sqlite3")
    #expect(try await ImportSourceKind.detect(at: link) == .bodegaSQLite)
  }
}
