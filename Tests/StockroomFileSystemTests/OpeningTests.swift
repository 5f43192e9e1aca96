import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Testing

@Suite("Opening and closing")
struct OpeningTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("A file or symbolic link in place of the hidden directory is refused and left unchanged")
  func hiddenFile() async throws {
    try data("x").write(to: place.file(".stockroom"))
    await expectError(.corrupted, naming: ".stockroom") { try place.open() }
    #expect(try place.contents(".stockroom") == data("x"))
    #expect(try place.visibleFiles() == [])

    try FileManager.default.removeItem(at: place.file(".stockroom"))
    let outside = try TemporaryDirectory()
    try FileManager.default.createSymbolicLink(at: place.file(".stockroom"), withDestinationURL: outside.url)
    await expectError(.corrupted, naming: ".stockroom") { try place.open() }
    #expect(try FileManager.default.contentsOfDirectory(atPath: outside.url.path) == [])
  }

  @Test("A first opening that wrote only a part of the state is repeated, unless there are entries")
  func partOfState() async throws {
    try await place.open().close()
    let file = place.file(".stockroom/state")
    let whole = try Data(contentsOf: file)
    for count in [1, 16, 20, 32, 63] {
      try whole.prefix(count).write(to: file)
      let engine = try place.open()
      #expect(try await engine.keyCount() == 0)
      try await engine.verify()
      try await engine.close()
      #expect(try Data(contentsOf: file) == whole)
    }
    try whole.prefix(32).write(to: file)
    try data("x").write(to: place.file("a.entry"))
    await expectError(.corrupted, naming: "state") { try place.open() }
    #expect(try Data(contentsOf: file) == whole.prefix(32))
  }

  @Test("A newer format and a corrupted state are refused and left unchanged")
  func state() async throws {
    let engine = try place.open()
    try await engine.write(data("1"), key: "a")
    try await engine.close()
    let file = place.file(".stockroom/state")
    let original = try Data(contentsOf: file)

    func check(_ bytes: Data, _ code: StorageError.Code) async throws {
      try bytes.write(to: file)
      await expectError(code, naming: "state") { try place.open() }
      #expect(try Data(contentsOf: file) == bytes)
    }
    var newer = original
    newer[16] = 9
    try await check(newer, .unsupported)
    try await check(original.prefix(63), .corrupted)
    try await check(original.prefix(1), .corrupted)
    try await check(Data(repeating: 0xA5, count: 64), .corrupted)
    var wild = original
    wild[47] = 0xFF
    try await check(wild, .corrupted)
    // The numbers by which readers detect a change.
    for start in [24, 32] {
      for last: UInt8 in [0xFE, 0xFF] {
        var endless = original
        endless.replaceSubrange(start..<start + 8, with: [last] + Array(repeating: 0xFF, count: 7))
        try await check(endless, .corrupted)
      }
    }
    #expect(try place.visibleFiles() == ["a.entry"])

    try original.write(to: file)
    #expect(try await place.open().read(key: "a") == data("1"))
  }

  @Test("A lost state file is rebuilt, and the order continues")
  func lostState() async throws {
    var engine: DiskStorageEngine? = try place.open()
    for key in ["c", "b"] as [CacheKey] { try await engine?.write(data("1"), key: key) }
    engine = nil
    try FileManager.default.removeItem(at: place.file(".stockroom"))
    let again = try place.open()
    try await again.write(data("1"), key: "a")
    #expect(try await again.readAllEntries().map(\.key) == ["c", "b", "a"])
  }
}
