import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Testing

@Suite("Foreign files in the directory")
struct ForeignFileTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("Foreign files are neither listed nor changed")
  func foreignFiles() async throws {
    let foreign = [
      "readme.txt", "A.entry", "%41.entry", "+.entry", "a b.entry", ".entry", ".x.entry", "con.entry",
      "%zz.entry",
      "%61.entry", "%ff.entry", String(repeating: "a", count: 241) + ".entry", "sub/a.entry",
      "x.more/y.entry",
    ]
    for directory in ["sub", "x.more"] {
      try FileManager.default.createDirectory(at: place.file(directory), withIntermediateDirectories: true)
    }
    for name in foreign { try data(name).write(to: place.file(name)) }
    let before = try place.visibleFiles()

    let engine = try place.open()
    #expect(try await engine.allKeys() == [])
    try await engine.write([("readme.txt", data("ours")), ("A", data("ours")), ("a", data("ours"))])
    #expect(try await engine.keyCount() == 3)
    try await engine.removeAllData()
    #expect(try place.visibleFiles() == before)
    for name in foreign { #expect(try place.contents(name) == data(name)) }
  }

  @Test("A file with the name of an entry is an entry, whatever program created it")
  func copiedIn() async throws {
    let engine = try place.open()
    try await engine.write(data("1"), key: "a")
    try data("2").write(to: place.file("b.entry"))
    #expect(try await Set(engine.allKeys()) == ["a", "b"])
    #expect(try await engine.read(key: "b") == data("2"))
    let created = try #require(try await engine.createdAt(key: "b"))
    #expect(try await engine.updatedAt(key: "b") == created)
    try await engine.write(data("3"), key: "b")
    #expect(try await engine.createdAt(key: "b") == created)
    try FileManager.default.removeItem(at: place.file("a.entry"))
    #expect(try await engine.read(key: "a") == nil)
    try await engine.removeAllData()
    #expect(try place.visibleFiles() == [])
  }

  @Test("A file copied in with a timestamp in the future can be removed by a batch")
  func fromTheFuture() async throws {
    let engine = try place.open()
    try await engine.write(data("1"), key: "a")
    for key in ["b", "c"] {
      try data("2").write(to: place.file("\(key).entry"))
      try FileManager.default.setAttributes(
        [.modificationDate: Date(timeIntervalSinceNow: 1e6)], ofItemAtPath: place.file("\(key).entry").path)
    }
    try await engine.remove(keys: ["a", "b"])
    try await engine.write(data("3"), key: "c")
    try await engine.removeAllData()
    #expect(try await engine.allKeys() == [])
  }

  @Test("Entries that are not regular files are not followed, not waited for, and not changed")
  func notFiles() async throws {
    let outside = try TemporaryDirectory()
    try data("secret").write(to: outside.file("x"))
    let long = CacheKey(verbatim: String(repeating: "l", count: 300))
    try FileManager.default.createSymbolicLink(
      at: place.file("link.entry"), withDestinationURL: outside.file("x"))
    try FileManager.default.createSymbolicLink(
      at: place.file(String(repeating: "l", count: 240) + ".more"), withDestinationURL: outside.url)
    try FileManager.default.createDirectory(at: place.file("dir.entry"), withIntermediateDirectories: true)
    #expect(mkfifo(place.file("pipe.entry").path, 0o600) == 0)

    let engine = try place.open()
    #expect(try await engine.allKeys() == [])
    for key in ["link", "dir", "pipe", long] as [CacheKey] {
      await expectError(.corrupted) { try await engine.read(key: key) }
      await expectError(.corrupted) { try await engine.keyExists(key) }
      await expectError(.corrupted) { try await engine.write(data("1"), key: key) }
      await expectError(.corrupted) { try await engine.write([("ok", data("1")), (key, data("1"))]) }
      await expectError(.corrupted) { try await engine.remove(key: key) }
    }
    try await engine.removeAllData()
    #expect(try await engine.allKeys() == [])
    #expect(try place.visibleFiles().count == 4)
    #expect(try FileManager.default.contentsOfDirectory(atPath: outside.url.path) == ["x"])
    #expect(try outside.contents("x") == data("secret"))
  }

  @Test(
    "A file that has been truncated, emptied or extended is not a value; one that has been replaced is"
  )
  func changedLength() async throws {
    let engine = try place.open()
    let path = place.file("a.entry").path
    for length in [0, 4, 6] {
      try await engine.write(data("value"), key: "a")
      #expect(truncate(path, off_t(length)) == 0)
      await expectError(.corrupted, naming: "a.entry") { try await engine.read(key: "a") }
      await expectError(.corrupted, naming: "a.entry") { try await engine.readAllEntries() }
      #expect(try await engine.keyExists("a"))
    }
    try await engine.write(data("again"), key: "a")
    let date = try #require(try await engine.updatedAt(key: "a"))
    #expect(try await engine.read(key: "a") == data("again"))
    try data("replaced").write(to: place.file("a.entry"), options: .atomic)
    #expect(try await engine.read(key: "a") == data("replaced"))
    // Timestamps of foreign changes come from the system's coarse clock, which may be a tick behind.
    #expect(try #require(try await engine.updatedAt(key: "a")) >= date.addingTimeInterval(-0.01))
  }
}
