import Foundation
import StockroomCore
import TestFixtures
import StockroomLevelDB
import Testing

#if os(Linux)
  extension SmallDisk {
    /// The directory of the engine's files.
    fileprivate var database: URL { directory.url.appending(path: "Stockroom.leveldb") }

    fileprivate func open(durability: Durability = .process) throws -> LevelDBStorageEngine {
      try LevelDBStorageEngine(directory: directory, durability: durability)
    }
  }

  @Suite(
    "LevelDB: a full disk", .serialized,
    .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
  struct LevelDBDiskFullTests {
    @Test(
      "A write that finds no space leaves no trace, and writes succeed once there is space",
      arguments: [0, 4096, 65_000, 140_000], Durability.allCases)
    func fullDisk(leaving count: Int, durability: Durability) async throws {
      let disk = try SmallDisk("size=8m")
      var engine = try disk.open(durability: durability)
      var expected: [CacheKey: Data] = [:]
      for round in 0..<3 {
        for number in 0..<20 {
          let key = CacheKey(verbatim: "\(round)/\(number)")
          expected[key] = noise(3000)
          try await engine.write(expected[key] ?? Data(), key: key)
        }
        try disk.fill(leaving: count)
        var failures = 0
        for number in 0..<30 {
          let batch = (0..<3).map {
            (key: CacheKey(verbatim: "\(round)/full/\(number)/\($0)"), data: noise(3000))
          }
          do {
            try await engine.write(batch)
            for (key, data) in batch { expected[key] = data }
          } catch let error as StorageError {
            #expect(error.code == .diskFull, "\(error)")
            failures += 1
          }
          try await expectEntries(expected, in: engine)
        }
        #expect(failures > 0)
        try disk.makeRoom()
        if round == 1 {
          try await engine.close()
          engine = try disk.open(durability: durability)
          try await expectEntries(expected, in: engine)
        }
        let key = CacheKey(verbatim: "\(round)/after")
        try await engine.write(Data("after".utf8), key: key)
        expected[key] = Data("after".utf8)
        try await expectEntries(expected, in: engine)
      }
      try await engine.close()
      try await expectEntries(expected, in: disk.open(durability: durability))
    }

    @Test("Opening on a full disk throws, and succeeds once there is space")
    func fullDiskAtOpening() async throws {
      let disk = try SmallDisk("size=8m")
      let key = CacheKey(verbatim: "a")
      try disk.fill()
      #expect { try disk.open() } throws: { ($0 as? StorageError)?.code == .diskFull }
      try disk.makeRoom()
      try await disk.open().write(Data("a".utf8), key: key)
      for count in [0, 4096, 8192, 16_384, 65_536] {
        try disk.fill(leaving: count)
        do {
          let engine = try disk.open()
          #expect(try await engine.read(key: key) == Data("a".utf8))
        } catch let error as StorageError {
          #expect(error.code == .diskFull, "\(error)")
        }
        try disk.makeRoom()
      }
      #expect(try await disk.open().read(key: key) == Data("a".utf8))
    }

    @Test(
      "Closing on a full disk loses nothing", arguments: [0, 4096, 65_536, 500_000], Durability.allCases)
    func fullDiskAtClosing(leaving count: Int, durability: Durability) async throws {
      let disk = try SmallDisk("size=8m")
      let engine = try disk.open(durability: durability)
      let values = (0..<20).map { _ in noise(5_000) }
      for (number, value) in values.enumerated() {
        try await engine.write(value, key: CacheKey(verbatim: String(format: "%02d", number)))
      }
      try disk.fill(leaving: count)
      try await engine.close()
      try disk.makeRoom()
      let again = try disk.open(durability: durability)
      #expect(try await again.readAllData() == values)
      try await again.verify()
    }

    @Test("A database that could not be reopened after a failed write is reopened by a later read")
    func reopenedByRead() async throws {
      let disk = try SmallDisk("size=8m")
      let engine = try disk.open()
      let (key, later) = (CacheKey(verbatim: "key"), CacheKey(verbatim: "later"))
      try await engine.write(Data("kept".utf8), key: key)
      let obstacles = try await failReopening(engine, on: disk, writing: key)
      await #expect(throws: StorageError.self) { try await engine.read(key: key) }
      for obstacle in obstacles { try FileManager.default.removeItem(at: obstacle) }

      #expect(try await engine.read(key: key) == Data("kept".utf8))
      #expect(try await engine.allKeys() == [key])
      try await engine.write(Data("later".utf8), key: later)
      try await engine.close()
      #expect(try await disk.open().readAllData() == [Data("kept".utf8), Data("later".utf8)])
    }

    @Test("A database that lost batches before it was reopened after a failed write is not read")
    func reopenedWithoutItsLastBatch() async throws {
      let disk = try SmallDisk("size=8m")
      let engine = try disk.open()
      let (key, lost) = (CacheKey(verbatim: "key"), CacheKey(verbatim: "lost"))
      try await engine.write(Data("kept".utf8), key: key)
      let names = try FileManager.default.contentsOfDirectory(atPath: disk.database.path)
      let log = disk.database.appending(path: try #require(names.first { $0.hasSuffix(".log") }))
      let end = try Data(contentsOf: log).count
      try await engine.write(Data("lost".utf8), key: lost)
      let obstacles = try await failReopening(engine, on: disk, writing: key)

      let file = try FileHandle(forWritingTo: log)
      try file.truncate(atOffset: UInt64(end))
      try file.close()
      for obstacle in obstacles { try FileManager.default.removeItem(at: obstacle) }
      for _ in 0..<2 {
        await #expect {
          try await engine.read(key: lost)
        } throws: {
          ($0 as? StorageError)?.code == .corrupted
        }
      }
      try await engine.close()
    }

    /// Makes a write fail with a full disk and prevents the database from being reopened.
    ///
    /// - Returns: The directories that prevent it from being opened.
    private func failReopening(
      _ engine: LevelDBStorageEngine, on disk: SmallDisk, writing key: CacheKey
    ) async throws -> [URL] {
      try disk.fill()
      await #expect {
        try await engine.write(noise(9000), key: key)
      } throws: {
        ($0 as? StorageError)?.code == .diskFull
      }
      try disk.makeRoom()

      // LevelDB creates a manifest when it opens a database, which fails if a directory has that name.
      let obstacles = (1..<100).map { disk.database.appending(path: String(format: "MANIFEST-%06d", $0)) }
        .filter { !FileManager.default.fileExists(atPath: $0.path) }
      for obstacle in obstacles {
        try FileManager.default.createDirectory(at: obstacle, withIntermediateDirectories: false)
      }
      let later = CacheKey(verbatim: "later")
      await #expect(throws: StorageError.self) { try await engine.write(Data("later".utf8), key: later) }
      return obstacles
    }

    @Test(
      "Writes that find no space while removed entries are compacted throw", .ownThreads,
      .timeLimit(.minutes(60)))
    func fullDiskWhileCompacting() async throws {
      // In a separate process, because LevelDB may terminate it.
      await #expect(processExitsWith: .success) {
        let disk = try SmallDisk("size=64m")
        for round in 0..<3 {
          let engine = try disk.open()
          let entries = (0..<28).map {
            (key: CacheKey(verbatim: "\(round)/\($0)"), data: noise(1 << 20))
          }
          try await engine.write(entries)
          try await engine.removeAllData()
          var number = 0
          do {
            while true {
              try await engine.write(entries[number % 28].data, key: CacheKey(verbatim: "later/\(number)"))
              number += 1
            }
          } catch let error as StorageError {
            #expect(error.code == .diskFull, "\(error)")
          }
          #expect(try await engine.keyCount() == number)
          try await engine.close()
          try FileManager.default.removeItem(at: disk.directory.url)
        }
      }
    }
  }
#endif
