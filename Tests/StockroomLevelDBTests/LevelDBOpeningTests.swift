import StockroomCLevelDB
import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

@Suite("LevelDB: opening and closing")
struct LevelDBOpeningTests {
  let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test("A second engine on the same place is refused until the first one is closed")
  func lockedUntilClosed() async throws {
    let first = try directory.open()
    let error = #expect(throws: StorageError.self) { try directory.open() }
    #expect(error?.code == .locked)
    #expect(error?.description.contains(directory.database.path) == true)
    try await first.write(Data("x".utf8), key: CacheKey(verbatim: "a"))
    try await first.close()
    let second = try directory.open()
    #expect(try await second.keyCount() == 1)
    try await first.close()
    await #expect { try await first.keyCount() } throws: { ($0 as? StorageError)?.code == .closed }
  }

  @Test("Opening throws while another process has the place open")
  func lockedByAnotherProcess() async throws {
    try await directory.open().close()
    let descriptor = open(directory.database.path, O_RDONLY | O_DIRECTORY)
    #expect(flock(descriptor, LOCK_EX | LOCK_NB) == 0)
    #expect { try directory.open() } throws: { ($0 as? StorageError)?.code == .locked }
    close(descriptor)
    try await directory.open().close()
  }

  @Test("A file in place of the directory is refused and left unchanged")
  func plainFile() throws {
    for name in ["file", "file/below", "Stockroom.leveldb"] {
      let file = directory.url.appending(path: name.split(separator: "/")[0].description)
      try Data("text".utf8).write(to: file)
      let place = name == "Stockroom.leveldb" ? directory.url : directory.url.appending(path: name)
      let error = #expect(throws: StorageError.self) {
        try LevelDBStorageEngine(directory: .init(url: place))
      }
      #expect(error?.description.contains(file.path) == true)
      #expect(error?.underlying != nil)
      #expect(try Data(contentsOf: file) == Data("text".utf8))
    }
  }

  @Test("A database that another program has opened and closed opens as before", arguments: [1, 2, 3])
  func openedByAnotherProgram(times: Int) async throws {
    for round in 0..<3 {
      let engine = try directory.open()
      try await engine.write((0..<50).map { (CacheKey(verbatim: "\(round)/\($0)"), noise(500)) })
      try await engine.close()
      for _ in 0..<times { try readWithLevelDB(directory.database.path) }
    }
    let engine = try directory.open()
    #expect(try await engine.readAllData().count == 150)
    #expect(try await engine.keyCount() == 150)
    try await engine.verify()
  }

  @Test(
    "A closed database has no long log for the next opening to read (rule O6)",
    arguments: Durability.allCases)
  func logAfterClosing(durability: Durability) async throws {
    let entries = (0..<600).map { (key: CacheKey(verbatim: String(format: "%03d", $0)), data: noise(5_000)) }
    let backup = directory.beside("backup")
    for isFirst in [true, false] {
      let engine = try directory.open(durability: durability)
      if !isFirst { #expect(try await engine.readAllData() == entries.map(\.data)) }
      try await engine.write(entries)
      #expect(try sizeOfLogs(in: directory.url) > 3_000_000)
      if isFirst { try await engine.backUp(to: .init(url: backup)) }
      try await engine.close()
      #expect(try sizeOfLogs(in: directory.url) <= 65_536)
    }
    #expect(try sizeOfLogs(in: backup) <= 65_536)
    for place in [directory.url, backup] {
      let engine = try LevelDBStorageEngine(directory: .init(url: place))
      #expect(try await engine.readAllData() == entries.map(\.data))
      try await engine.verify()
    }
  }

  private func sizeOfLogs(in place: URL) throws -> Int {
    let database = place.appending(path: "Stockroom.leveldb")
    return try FileManager.default.contentsOfDirectory(at: database, includingPropertiesForKeys: nil)
      .filter { $0.pathExtension == "log" }
      .reduce(0) { try $0 + Data(contentsOf: $1).count }
  }

  @Test("A corrupted clean-shutdown marker does not prevent an intact database from opening")
  func corruptedMarker() async throws {
    for text in ["", "x", String(repeating: "\0", count: 100)] {
      let engine = try directory.open()
      try await engine.write(Data(text.utf8), key: CacheKey(verbatim: "a"))
      try await engine.close()
      try Data(text.utf8).write(to: directory.database.appending(path: "STOCKROOM.closed"))
      #expect(try await directory.open().read(key: CacheKey(verbatim: "a")) == Data(text.utf8))
    }
  }

  @Test("Another program's LevelDB database is refused and left unchanged", arguments: [true, false])
  func foreignDatabase(isAtTop: Bool) throws {
    let place = isAtTop ? directory.url : directory.database
    try makeForeignDatabase(at: place.path)
    let before = try contents(of: directory.url)
    let error = #expect(throws: StorageError.self) { try directory.open() }
    #expect(error?.code == .unsupported)
    #expect(try contents(of: directory.url) == before)
  }

  @Test("Foreign files beside the database are kept, whatever their names")
  func foreignFiles() async throws {
    let names = ["notes.txt", "LOG", "LOCK", "000003.log", "000005.ldb", "MANIFEST-000001"]
    for name in names { try Data(name.utf8).write(to: directory.url.appending(path: name)) }
    for _ in 0..<3 {
      let engine = try directory.open()
      try await engine.write(Data("x".utf8), key: CacheKey(verbatim: "a"))
      #expect(try await engine.allKeys().map(\.value) == ["a"])
      try await engine.removeAllData()
      try await engine.close()
    }
    for name in names {
      #expect(try Data(contentsOf: directory.url.appending(path: name)) == Data(name.utf8))
    }
  }

  @Test("A crash while the database is being created leaves the place usable")
  func interruptedCreation() async throws {
    try await directory.open().close()
    let identity = try String(contentsOf: directory.database.appending(path: "STOCKROOM"), encoding: .utf8)
    for leftover in [[], ["STOCKROOM.new"], ["STOCKROOM", "LOCK", "LOG", "MANIFEST-000001", "000001.dbtmp"]] {
      let directory = try TemporaryDirectory()
      try FileManager.default.createDirectory(at: directory.database, withIntermediateDirectories: false)
      for name in leftover {
        let text = name == "STOCKROOM" ? identity : ""
        try Data(text.utf8).write(to: directory.database.appending(path: name))
      }
      let engine = try directory.open()
      try await engine.write(Data("x".utf8), key: CacheKey(verbatim: "a"))
      #expect(try await engine.keyCount() == 1)
    }
  }

  #if os(Linux)
    @Test("A descriptor inherited by a process that is just starting does not keep the database locked")
    func inheritedDescriptor() async throws {
      let engine = try directory.open()
      let path = directory.database.path(percentEncoded: false)
      let descriptor = try #require(
        FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap(Int32.init).first {
          let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
          return target.map { URL(filePath: $0).path } == URL(filePath: path).path
        })
      // A child process has such a copy between fork and exec.
      let copy = dup(descriptor)
      defer { close(copy) }
      try await engine.close()
      try await directory.open().close()
    }
  #endif

  @Test("Two hundred engines leak no descriptors and no threads", .timeLimit(.minutes(60)))
  func noLeaks() async throws {
    func opened() throws -> (Int, Int) {
      let descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
        .filter { link in
          let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(link)")
          return target?.contains(directory.parent.lastPathComponent) == true
        }
      let maps = try String(contentsOfFile: "/proc/self/maps", encoding: .utf8)
      return (descriptors.count, maps.components(separatedBy: directory.parent.lastPathComponent).count - 1)
    }
    for round in 0..<200 {
      let engine = try directory.open()
      try await engine.write(Data("x".utf8), key: CacheKey(verbatim: "a"))
      if round.isMultiple(of: 2) { try await engine.close() }
    }
    // The last one is released on another thread.
    while try opened() != (0, 0) { await Task.yield() }
  }

  /// Opens, reads everything and closes, like LevelDB's own tools and its bindings for other languages.
  private func readWithLevelDB(_ path: String) throws {
    let options = leveldb_options_create()
    defer { leveldb_options_destroy(options) }
    var text: UnsafeMutablePointer<CChar>?
    let database = try #require(leveldb_open(options, path, &text))
    defer { leveldb_close(database) }
    let reading = leveldb_readoptions_create()
    defer { leveldb_readoptions_destroy(reading) }
    let iterator = leveldb_create_iterator(database, reading)
    defer { leveldb_iter_destroy(iterator) }
    leveldb_iter_seek_to_first(iterator)
    while leveldb_iter_valid(iterator) != 0 { leveldb_iter_next(iterator) }
    leveldb_iter_get_error(iterator, &text)
    #expect(text == nil)
  }

  private func makeForeignDatabase(at path: String) throws {
    let options = leveldb_options_create()
    defer { leveldb_options_destroy(options) }
    leveldb_options_set_create_if_missing(options, 1)
    var text: UnsafeMutablePointer<CChar>?
    let database = try #require(leveldb_open(options, path, &text))
    let writing = leveldb_writeoptions_create()
    leveldb_put(database, writing, "key", 3, "value", 5, &text)
    leveldb_writeoptions_destroy(writing)
    leveldb_close(database)
    try #require(text == nil)
  }

  /// The names, contents and modification times of all files.
  private func contents(of url: URL) throws -> [String: [String]] {
    var found: [String: [String]] = [:]
    for path in try FileManager.default.subpathsOfDirectory(atPath: url.path) {
      let file = url.appending(path: path).path
      let attributes = try FileManager.default.attributesOfItem(atPath: file)
      let bytes = FileManager.default.contents(atPath: file) ?? Data()
      found[path] = ["\(attributes[.modificationDate] ?? "")", bytes.base64EncodedString()]
    }
    return found
  }
}
