#if os(Linux)
  import Foundation
  import StockroomCore
  import TestFixtures
  import Testing

  @testable import StockroomFileSystem

  /// Batches that remove entries on a disk without space to keep the removed files.
  @Suite(
    "Removing on a full disk", .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
  struct FullDiskRemovalTests {
    /// Each key has a directory of its own, so ``DiskConnection/undo`` needs one too.
    private static let keys = ["1", "2"].map { CacheKey(verbatim: $0 + String(repeating: "x", count: 300)) }

    @Test(
      "A batch of removals with a refused removal removes nothing, however little space there is",
      .enabled(if: ImmutableFile.isPossible, "this user or this file system has no immutable files"),
      arguments: [false, true], 0...1)
    func refused(removesAll: Bool, inodes: Int) async throws {
      let system = try SmallDisk("nr_inodes=60")
      let store = system.url.appending(path: "store")
      let engine = try system.open()
      for key in Self.keys { try await engine.write(data("1"), key: key) }
      let connection = try DiskConnection(directory: store.path, durability: .full)
      try system.takeInodes(leaving: inodes)
      for key in Self.keys {
        let file = try ImmutableFile(store.appending(path: FileName(key).path))
        let error = #expect(throws: StorageError.self) {
          try connection.withLock {
            let steps: [Transaction.Step] = removesAll ? [.removeAll] : Self.keys.map { .remove($0) }
            let transaction = Transaction(
              boundary: try connection.reserveSequenceNumbers(0, at: .now()), steps: steps)
            try connection.journal.begin(transaction)
            try connection.complete(transaction, isReplay: false)
          }
        }
        #expect(error?.code == .permissionDenied)
        try file.makeMutable()
        #expect(try await engine.readAllEntries().map(\.key) == Self.keys)
        #expect(try await engine.readAllData() == [data("1"), data("1")])
        let undo = store.appending(path: ".stockroom/undo")
        #expect(try FileManager.default.contentsOfDirectory(atPath: undo.path) == [])
      }
      connection.release()
      try await engine.remove(keys: Self.keys)
      #expect(try await engine.keyCount() == 0)
      #expect(try FileManager.default.contentsOfDirectory(atPath: store.path) == [".stockroom"])
    }

    @Test("A batch that can no longer be undone when its process dies is completed")
    func irreversible() async throws {
      let system = try SmallDisk("nr_inodes=60")
      let engine = try system.open()
      for key in Self.keys + ["kept"] { try await engine.write(data("1"), key: key) }
      try await engine.close()
      let connection = try DiskConnection(
        directory: system.url.appending(path: "store").path, durability: .full)
      try connection.withLock {
        let boundary = try connection.reserveSequenceNumbers(0, at: .now())
        try connection.journal.begin(Transaction(boundary: boundary, steps: Self.keys.map { .remove($0) }))
        try connection.setUnstable(true)
        try connection.journal.forbidUndoing()
        try connection.removeEntry(FileName(Self.keys[0]))
      }
      connection.release()
      try system.takeInodes(leaving: 0)
      let again = try system.open()
      #expect(try await again.allKeys() == ["kept"])
      try await again.remove(key: "kept")
    }
  }

  @Suite(
    "Writing on a full disk", .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
  struct FullDiskWriteTests {
    /// A file in nested directories. The staged file may use more than one inode because of its extended
    /// attribute.
    @Test("A write without enough space for its directories leaves none of them", arguments: 1...3)
    func directories(inodes: Int) async throws {
      let system = try SmallDisk("nr_inodes=60")
      let store = system.url.appending(path: "store")
      let engine = try system.open()
      try await engine.write(data("1"), key: "a")
      try system.takeInodes(leaving: inodes)
      let long = CacheKey(verbatim: String(repeating: "x", count: CacheKey.maximumLength))
      for isBatch in [false, true] {
        do {
          if isBatch {
            try await engine.apply([.write(data("1"), key: long), .remove(key: "absent")])
          } else {
            try await engine.write(data("1"), key: long)
          }
          try await engine.remove(key: long)
        } catch let error as StorageError {
          #expect(error.code == .diskFull)
        }
        let names = try FileManager.default.contentsOfDirectory(atPath: store.path)
        #expect(Set(names) == [".stockroom", "a.entry"])
      }
    }
  }

  extension SmallDisk {
    /// Uses up all but some inodes of a disk mounted with `nr_inodes`.
    func takeInodes(leaving count: Int) throws {
      let others = url.appending(path: "others")
      try FileManager.default.createDirectory(at: others, withIntermediateDirectories: false)
      var last = 0
      while FileManager.default.createFile(atPath: others.appending(path: "\(last)").path, contents: nil) {
        last += 1
      }
      for number in 0..<count { try FileManager.default.removeItem(at: others.appending(path: "\(number)")) }
    }
  }
#endif
