import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Testing

@Suite("One file per entry")
struct EntryFileTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("A value is the contents of a file named after its key", arguments: Durability.allCases)
  func contents(_ durability: Durability) async throws {
    let engine = try place.open(durability)
    try await engine.write(data("Bonjour"), key: "notes/Paris 2026")
    #expect(try place.visibleFiles() == ["notes%2f+paris%202026.entry"])
    #expect(try place.contents("notes%2f+paris%202026.entry") == data("Bonjour"))

    try await engine.write(data("Salut"), key: "notes/Paris 2026")
    #expect(try await engine.read(key: "notes/Paris 2026") == data("Salut"))
    try await engine.remove(key: "notes/Paris 2026")
    #expect(try await engine.read(key: "notes/Paris 2026") == nil)
    #expect(try place.visibleFiles() == [])
  }

  @Test("A batch writes, replaces and removes files", arguments: Durability.allCases)
  func batch(_ durability: Durability) async throws {
    let engine = try place.open(durability)
    try await engine.write([("a", data("1")), ("b", data("2")), ("c", data("3"))])
    try await engine.apply([.remove(key: "a"), .write(data("4"), key: "b"), .write(data("5"), key: "d")])
    #expect(try place.visibleFiles() == ["b.entry", "c.entry", "d.entry"])
    #expect(try await engine.read(keys: ["d", "a", "b", "b"]) == [data("5"), data("4"), data("4")])
    #expect(try await engine.readAllEntries().map(\.key) == ["b", "c", "d"])

    try await engine.apply([.write(data("6"), key: "e"), .removeAll, .write(data("7"), key: "c")])
    #expect(try place.visibleFiles() == ["c.entry"])
    #expect(try place.contents("c.entry") == data("7"))
    try await engine.removeAllData()
    #expect(try await engine.keyCount() == 0)
  }

  @Test("An overwrite keeps the creation time and the position in the order")
  func metadata() async throws {
    let engine = try place.open()
    for key in ["x", "b", "a"] as [CacheKey] { try await engine.write(data("1"), key: key) }
    let created = try await engine.createdAt(key: "x")
    try await engine.write(data("2"), key: "x")
    let updated = try #require(try await engine.updatedAt(key: "x"))
    try await engine.close()

    let again = try place.open()
    #expect(try await again.createdAt(key: "x") == created)
    #expect(try await again.updatedAt(key: "x") == updated)
    #expect(try #require(created) < updated)
    #expect(try await again.readAllEntries().map(\.key) == ["x", "b", "a"])
    try await again.apply([.remove(key: "x"), .write(data("3"), key: "x")])
    #expect(try await again.readAllEntries().map(\.key) == ["b", "a", "x"])
  }

  @Test(
    "An entry keeps its own timestamp if the file system truncates that of the file to hundredths of a second"
  )
  func cutTime() async throws {
    let engine = try place.open()
    try await engine.write(data("1"), key: "a")
    let updated = try await engine.updatedAt(key: "a")
    let file = try #require(try FileDescriptor.openFile(atPath: place.file("a.entry").path))
    let time = try file.status().modified.nanoseconds
    try file.setModificationTime(Timestamp(nanoseconds: time - time % 10_000_000))
    #expect(try await engine.updatedAt(key: "a") == updated)
    // A greater difference is an edit.
    try file.setModificationTime(Timestamp(nanoseconds: time + 20_000_000))
    #expect(try await engine.updatedAt(key: "a") != updated)
  }

  @Test(
    "An entry keeps its own timestamp if it is out of the file system's range",
    arguments: [-3e9, 4e9] as [Double])
  func timeOutOfRange(_ seconds: Double) async throws {
    let engine = try place.open()
    let date = Date(timeIntervalSince1970: seconds)
    try await engine.writeEntries([StorageEntry(key: "a", data: data("1"), createdAt: date, updatedAt: date)])
    let file = try #require(try FileDescriptor.openFile(atPath: place.file("a.entry").path))
    // The first and last seconds that 32 bits can represent.
    let limit = Int64(seconds < 0 ? Int32.min : Int32.max) * 1_000_000_000
    try file.setModificationTime(Timestamp(nanoseconds: limit))
    #expect(try await engine.updatedAt(key: "a") == date)
    // An edit, since the entry's own timestamp is within the range.
    try await engine.writeEntries([
      StorageEntry(key: "a", data: data("1"), createdAt: .distantPast, updatedAt: .now)
    ])
    let edited = try #require(try FileDescriptor.openFile(atPath: place.file("a.entry").path))
    try edited.setModificationTime(Timestamp(nanoseconds: limit))
    #expect(try await engine.updatedAt(key: "a") == Timestamp(nanoseconds: limit).date)
  }
}
