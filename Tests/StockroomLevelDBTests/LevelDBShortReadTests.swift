import Foundation
import StockroomCLevelDB
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomLevelDB

@Suite("LevelDB: short reads")
struct LevelDBShortReadTests {
  @Test("The part of a log that LevelDB did not read is recovered, even if that opening was interrupted")
  func shortLog() async throws {
    let directory = try TemporaryDirectory()
    let engine = try directory.open(durability: .full)
    let log = try directory.newestLog
    for number in 0..<20 { try await engine.write(noise(5_000), key: CacheKey(verbatim: "\(number)")) }
    try await engine.remove(key: CacheKey(verbatim: "3"))
    let expected = try await contents(of: engine)
    let whole = try Data(contentsOf: directory.database.appending(path: log))
    for cut in [0, 2_000, 32_768, 65_536, whole.count - 1, whole.count] {
      let copy = try TemporaryDirectory()
      try FileManager.default.copyItem(at: directory.database, to: copy.database)
      try whole.prefix(cut).write(to: copy.database.appending(path: log))
      // Moves the entries that were read into a table, and removes the log.
      try openWithLevelDB(copy.database)
      try whole.write(to: copy.database.appending(path: keptName(of: log)))
      // As after the copying of a log was interrupted.
      try whole.prefix(40_000).write(to: copy.database.appending(path: keptName(of: log) + ".new"))
      #expect(try await contents(of: copy.open()) == expected, "after \(cut) bytes")
      let names = try FileManager.default.contentsOfDirectory(atPath: copy.database.path)
      #expect(!names.contains { $0.hasPrefix("STOCKROOM.kept") })
    }
    try await engine.close()
  }

  @Test("A log kept by an interrupted opening changes nothing if the database has been written since")
  func oldLog() async throws {
    let directory = try TemporaryDirectory()
    let engine = try directory.open()
    let log = try directory.newestLog
    for number in 0..<5 { try await engine.write(Data([1]), key: CacheKey(verbatim: "\(number)")) }
    try FileManager.default.copyItem(
      at: directory.database.appending(path: log), to: directory.beside("kept"))
    try await engine.remove(key: CacheKey(verbatim: "1"))
    try await engine.close()
    for _ in 0..<2 {
      let again = try directory.open()
      try await again.write(Data([2]), key: CacheKey(verbatim: "2"))
      try await again.close()
    }
    try FileManager.default.copyItem(
      at: directory.beside("kept"), to: directory.database.appending(path: keptName(of: log)))
    let last = try directory.open()
    #expect(try await last.allKeys().map(\.value).sorted() == ["0", "2", "3", "4"])
    #expect(try await last.read(key: CacheKey(verbatim: "2")) == Data([2]))
  }

  @Test("LevelDB either reads all of a manifest that the engine has joined, or does not open the database")
  func shortManifest() async throws {
    let directory = try TemporaryDirectory()
    let engine = try directory.open()
    for number in 0..<30 { try await engine.write(noise(1 << 20), key: CacheKey(verbatim: "\(number)")) }
    let expected = try await contents(of: engine)
    try await engine.close()
    let copy = try TemporaryDirectory()
    try FileManager.default.copyItem(at: directory.database, to: copy.database)
    let files = LevelDBFiles(
      directory: try .openDirectory(atPath: copy.database.path), permissions: .owner)
    let manifest = try LevelDBManifest(in: files)
    #expect(manifest.ends.count > 2)
    // The original manifest lets LevelDB open the database with only a part of it.
    #expect(try opens(copy, withManifestOf: manifest.ends[manifest.ends.count - 2]))
    let joined = try manifest.joinRecords(in: files)
    let end = try #require(joined.ends.first)
    #expect(joined.ends.count == 1)
    #expect(joined.tables == manifest.tables)
    #expect(joined.logNumber == manifest.logNumber)
    for cut in stride(from: 0, to: end, by: 13) + [end - 1] {
      #expect(try !opens(copy, withManifestOf: cut), "after \(cut) of \(end) bytes")
    }
    #expect(try opens(copy, withManifestOf: end))
    #expect(try await contents(of: copy.open()) == expected)
  }

  #if os(Linux)
    @Test("A file that can be read only in part is not treated as a shorter file")
    func partOfFile() throws {
      // Files in sysfs have a few bytes and report the size of a page.
      let directory = "/sys/devices/system/cpu"
      guard let status = try FileStatus(atPath: directory + "/online"), status.size > 1_000 else { return }
      let files = LevelDBFiles(directory: try .openDirectory(atPath: directory), permissions: .owner)
      let error = #expect(throws: StorageError.self) { try files.read("online") }
      #expect(error?.code == .io)
      #expect(try !files.read("online", count: 64).isEmpty)
    }
  #endif

  @Test("Logs are sorted by number, including numbers of more than six digits")
  func logsBeyondSixDigits() throws {
    let directory = try TemporaryDirectory()
    try FileManager.default.createDirectory(at: directory.database, withIntermediateDirectories: true)
    let numbers: [UInt64] = [7, 999_998, 999_999, 1_000_000, 1_000_002, 10_000_000]
    for number in numbers.shuffled() {
      try Data().write(to: directory.database.appending(path: LevelDBFileList.logName(number)))
    }
    let files = LevelDBFiles(
      directory: try .openDirectory(atPath: directory.database.path), permissions: .owner)
    #expect(try LevelDBFileList(in: files).logs.map { LevelDBFileList.number(ofLog: $0) } == numbers)
  }

  @Test(
    "A file of one record is read as it was written, for any size of the record",
    arguments: [0, 1, 32_760, 32_761, 32_762, 100_000])
  func recordOfAnySize(_ size: Int) {
    let record = [UInt8](noise(size))
    let log = LevelDBLog.bytes(of: record).withUnsafeBytes {
      LevelDBLog($0, searchingBehindCorruption: .anyRecord)
    }
    #expect(log.records.map(\.content) == [record])
    #expect(log.ending == .whole)
  }

  private func contents(of engine: LevelDBStorageEngine) async throws -> [String: Data] {
    Dictionary(
      try await engine.readAllDataAndKeys().map { ($0.key.value, $0.data) }, uniquingKeysWith: { $1 })
  }

  private func keptName(of log: String) -> String { "STOCKROOM.kept-" + log.dropLast(".log".count) }

  /// Whether LevelDB opens a copy of the database with a truncated manifest.
  private func opens(_ original: TemporaryDirectory, withManifestOf count: Int) throws -> Bool {
    let copy = try TemporaryDirectory()
    try FileManager.default.copyItem(at: original.database, to: copy.database)
    let current = try String(contentsOf: copy.database.appending(path: "CURRENT"), encoding: .utf8)
    let manifest = copy.database.appending(path: current.trimmingCharacters(in: .newlines))
    try Data(contentsOf: manifest).prefix(count).write(to: manifest)
    do {
      try openWithLevelDB(copy.database)
      return true
    } catch is NotOpened {
      return false
    }
  }

  private struct NotOpened: Error {}

  private func openWithLevelDB(_ database: URL) throws {
    let options = leveldb_options_create()
    defer { leveldb_options_destroy(options) }
    var message: UnsafeMutablePointer<CChar>?
    let handle = leveldb_open(options, database.path, &message)
    defer { leveldb_free(message) }
    guard let handle else { throw NotOpened() }
    leveldb_close(handle)
  }
}

extension TemporaryDirectory {
  fileprivate var newestLog: String {
    get throws {
      try #require(
        try FileManager.default.contentsOfDirectory(atPath: database.path).filter { $0.hasSuffix(".log") }
          .max())
    }
  }
}
