#if os(Linux)
  import Foundation
  import StockroomCore
  import TestFixtures
  import Testing

  @testable import StockroomFileSystem

  @Suite(
    "Other file systems", .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
  struct LimitedFileSystemTests {
    @Test("Without extended attributes, creation time and order survive overwrites and reopening")
    func sidecars() async throws {
      let system = try SmallDisk(type: "ramfs")
      let keys: [CacheKey] = ["c", "a", CacheKey(verbatim: String(repeating: "L", count: 400)), "b"]
      let engine = try system.open()
      for key in keys { try await engine.write(data("1"), key: key) }
      let created = try #require(try await engine.createdAt(key: "c"))
      try await engine.write(data("2"), key: "c")
      try await engine.write(keys.map { ($0, data("3")) } + [("d", data("3"))])
      #expect(try await engine.createdAt(key: "c") == created)
      let updated = try #require(try await engine.updatedAt(key: "c"))
      #expect(updated > created)
      try await engine.close()

      let again = try system.open()
      #expect(try await again.createdAt(key: "c") == created)
      #expect(try await again.readAllEntries().map(\.key) == keys + ["d"])
      try await again.apply([.remove(key: "c"), .write(data("4"), key: "c")])
      #expect(try await again.readAllEntries().map(\.key) == keys.dropFirst() + ["d", "c"])
      try await again.removeAllData()
      let sidecars = system.url.appending(path: "store/.stockroom/created")
      #expect(try FileManager.default.contentsOfDirectory(atPath: sidecars.path) == [])
    }

    @Test(
      "Without extended attributes, completing an interrupted overwrite keeps creation time and order",
      arguments: 0...4)
    func completedOverwrite(_ steps: Int) async throws {
      let system = try SmallDisk(type: "ramfs")
      let engine = try system.open()
      for key in ["a", "b", "c"] as [CacheKey] { try await engine.write(data("old"), key: key) }
      let created = try #require(try await engine.createdAt(key: "b"))
      try await engine.close()
      let path = system.url.appending(path: "store").path
      let connection = try DiskConnection(directory: path, durability: .full)
      try connection.withLock {
        let name = FileName("b")
        let (sidecars, undoSidecars) = (
          try #require(connection.sidecars), try #require(connection.undoSidecars)
        )
        let old = try #require(try connection.metadata(of: name))
        let boundary = try connection.reserveSequenceNumbers(1, at: .now())
        let staged = StagedName(boundary: boundary, number: 0)
        let header = EntryHeader(
          createdAt: old.header.createdAt, updatedAt: .now(), sequence: old.header.sequence)
        try connection.stage(
          data("new"), EntryMetadata(header: header, size: 3), as: staged, synchronized: true)
        try connection.journal.begin(
          Transaction(boundary: boundary, steps: [.replace("b", staged: 0)]))
        if steps > 0 { try connection.entries.move(name, to: connection.undo) }
        if steps > 1 { try sidecars.move(name, to: undoSidecars) }
        if steps > 2 {
          try sidecars.moveIn(staged.metadata, from: connection.staging.directory, to: name)
        }
        if steps > 3 {
          _ = try connection.entries.moveIn(staged, from: connection.staging.directory, to: name)
        }
      }
      connection.release()
      let again = try system.open()
      #expect(try await again.read(key: "b") == data("new"))
      #expect(try await again.createdAt(key: "b") == created)
      #expect(try await again.readAllEntries().map(\.key) == ["a", "b", "c"])
    }

    @Test(
      "A full disk refuses writes, keeps the entries, and allows removals",
      arguments: Durability.allCases)
    func fullDisk(_ durability: Durability) async throws {
      let system = try SmallDisk("size=1m")
      let engine = try system.open(durability)
      let value = Data(repeating: 7, count: 8000)
      var keys: [CacheKey] = []
      while keys.count < 1000 {
        let key = CacheKey(verbatim: "k\(keys.count)")
        do { try await engine.write(value, key: key) } catch { break }
        keys.append(key)
      }
      #expect((50..<200).contains(keys.count))
      let large = Data(repeating: 1, count: 500_000)
      await expectError(.diskFull) { try await engine.write(large, key: "new") }
      await expectError(.diskFull) { try await engine.write(large, key: "k0") }
      await expectError(.diskFull) {
        try await engine.write([("tiny", Data()), ("new", large), ("k0", large)])
      }
      #expect(try await engine.readAllEntries().map(\.key) == keys)
      #expect(Set(try await engine.readAllData()) == [value])
      let staging = system.url.appending(path: "store/.stockroom/staging")
      #expect(try FileManager.default.contentsOfDirectory(atPath: staging.path) == [])

      let again = try system.open(durability)
      try await again.remove(keys: Array(keys.prefix(20)))
      try await engine.write(value, key: "new")
      try await engine.write([("x", value), ("y", value)])
      #expect(try await again.readAllEntries().map(\.key) == keys.dropFirst(20) + ["new", "x", "y"])
    }

    @Test("Without free inodes, a batch is undone and the engine continues")
    func noInodes() async throws {
      let system = try SmallDisk("nr_inodes=40")
      let engine = try system.open()
      try await engine.write((0..<10).map { (CacheKey(verbatim: "k\($0)"), data("1")) })
      // Staging uses 15 of the remaining 18 inodes; the directories of the long keys need more than the rest.
      let long = (0..<15).map { CacheKey(verbatim: "\($0)" + String(repeating: "x", count: 300)) }
      await expectError(.diskFull) {
        try await engine.apply([.remove(key: "k0")] + long.map { .write(data("2"), key: $0) })
      }
      #expect(try await engine.keyCount() == 10)
      #expect(try await engine.read(key: "k0") == data("1"))
      try await engine.apply([.remove(key: "k0"), .write(data("2"), key: long[0])])
      #expect(try await engine.keyCount() == 10)
      let again = try system.open()
      #expect(try await again.read(key: long[0]) == data("2"))
    }

    @Test("A file system that is read-only is refused")
    func readOnly() async throws {
      let system = try SmallDisk(isReadOnly: true)
      await expectError(.readOnly, naming: system.url.path) { try system.open() }
    }
  }
#endif
