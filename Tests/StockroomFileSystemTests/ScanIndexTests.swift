import Foundation
import StockroomCore
import TestFixtures
import Testing

@testable import StockroomFileSystem

@Suite("The scan index")
struct ScanIndexTests {
  let place: TemporaryDirectory
  let engine: DiskStorageEngine

  init() throws {
    place = try TemporaryDirectory()
    engine = try place.open(.process)
  }

  private func scanned(_ engine: DiskStorageEngine? = nil) async throws -> [CacheKey] {
    try await (engine ?? self.engine).scan(.all, limit: nil).map(\.key)
  }

  /// Scans until the index is kept, which requires that the directory has not changed for longer than a tick
  /// of the clock.
  private func buildIndex() async throws {
    while try !isKept() { _ = try await scanned() }
  }

  private func isKept() throws -> Bool {
    let connection = try engine.connection
    return try connection.index.keys(in: .init(connection, version: connection.state.read().version)) != nil
  }

  @Test("It is built by a scan, and updated by all writes of the engine")
  func ownWrites() async throws {
    let long = CacheKey(verbatim: String(repeating: "l", count: 300))
    try await engine.write([("b", data("1")), ("d", data("1")), (long, data("1"))])
    #expect(try !isKept())
    try await buildIndex()

    try await engine.write(data("1"), key: "a")
    try await engine.write(data("2"), key: "b")
    try await engine.remove(key: "d")
    try await engine.remove(key: "absent")
    #expect(try isKept())
    #expect(try await scanned() == ["a", "b", long])
    try await engine.apply([.write(data("1"), key: "e"), .remove(key: "a"), .write(data("1"), key: "c")])
    #expect(try isKept())
    #expect(try await scanned() == ["b", "c", "e", long])
    #expect(try await engine.scan(KeyRange(after: "b", upTo: long), limit: 2).map(\.key) == ["c", "e"])
    try await engine.apply([.write(data("1"), key: "f"), .removeAll, .write(data("1"), key: "g")])
    #expect(try isKept())
    #expect(try await scanned() == ["g"])
    try await engine.removeAllData()
    #expect(try isKept())
    #expect(try await scanned() == [])
  }

  @Test(
    "It is built by a transaction right after a write, and updated by the writes that follow")
  func builtWithLock() async throws {
    try await engine.write(data("1"), key: "b")
    #expect(try await engine.withTransaction { try $0.keyCount() } == 1)
    #expect(try isKept())
    try await engine.write(data("1"), key: "a")
    #expect(try isKept())
    #expect(try await scanned() == ["a", "b"])
  }

  #if os(Linux)
    @Test("A page of a scan does not list the directory while the index is kept")
    func pages() async throws {
      try await engine.write([("a", data("1")), ("b", data("1")), ("c", data("1"))])
      try await buildIndex()
      let openings = try DirectoryOpenings(of: place.url)
      var keys: [CacheKey] = []
      for _ in 0..<3 {
        keys += try await engine.scan(KeyRange(after: keys.last, upTo: nil), limit: 1).map(\.key)
      }
      #expect(keys == ["a", "b", "c"])
      let openingsByScans = openings.takeCount()
      #expect(openingsByScans == 0)
      _ = try await engine.allKeys()
      let openingsByListing = openings.takeCount()
      #expect(openingsByListing > 0)
    }
  #endif

  @Test("A refused write leaves it correct")
  func refusedWrite() async throws {
    try await engine.write(data("1"), key: "b")
    try FileManager.default.createDirectory(at: place.file("dir.entry"), withIntermediateDirectories: false)
    try await buildIndex()
    await expectError(.corrupted) { try await engine.write([("a", data("1")), ("dir", data("1"))]) }
    await expectError(.corrupted) { try await engine.write(data("1"), key: "dir") }
    #expect(try await scanned() == ["b"])
    try await engine.write(data("1"), key: "a")
    #expect(try await scanned() == ["a", "b"])
  }

  @Test("A scan sees the writes of another engine")
  func otherEngines() async throws {
    try await engine.write([("a", data("1")), ("b", data("1"))])
    try await buildIndex()
    let other = try place.open(.process)
    for number in 0..<5 {
      try await other.write(data("1"), key: CacheKey(verbatim: "c\(number)"))
      #expect(try await scanned() == ["a", "b"] + (0...number).map { CacheKey(verbatim: "c\($0)") })
    }
    try await other.remove(keys: ["a", "c0", "c2"])
    try await engine.write(data("1"), key: "d")
    #expect(try await scanned() == ["b", "c1", "c3", "c4", "d"])
    #expect(try await scanned(other) == ["b", "c1", "c3", "c4", "d"])
  }

  @Test("A scan sees files that other programs add and remove")
  func foreignFiles() async throws {
    try await engine.write([("a", data("1")), ("b", data("1"))])
    try await buildIndex()
    try data("2").write(to: place.file("c.entry"))
    try FileManager.default.removeItem(at: place.file("a.entry"))
    #expect(try await scanned() == ["b", "c"])
    try await buildIndex()
    try await engine.write(data("1"), key: "e")
    try data("2").write(to: place.file("d.entry"))
    #expect(try await scanned() == ["b", "c", "d", "e"])
  }
}
