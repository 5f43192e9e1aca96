import StockroomCLMDB
import Foundation
import StockroomCore
import TestFixtures
import StockroomLMDB
import Testing

@Suite struct LMDBFaultTests {
  /// A directory with a closed database of several pages.
  private func filled() async throws -> TemporaryDirectory {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write((0..<500).map { (key($0), value($0, count: 500)) })
    try await engine.close()
    return place
  }

  @Test("A file truncated at any length is refused", arguments: [1, 16, 4095, 4096, 8192, 100_000])
  func truncated(left: Int) async throws {
    let place = try await filled()
    let whole = try Data(contentsOf: place.dataFile)
    for size in [left, whole.count - left] {
      let part = whole.prefix(size)
      try part.write(to: place.dataFile)
      #expect(await code { _ = try place.engine() } == .corrupted)
      #expect(try Data(contentsOf: place.dataFile) == part)
    }
    try whole.write(to: place.dataFile)
    #expect(try await place.engine().keyCount() == 500)
  }

  @Test(
    "A large value overwritten by smaller ones in a batch is not corruption",
    arguments: [1, 5_000, 12_000])
  func shrunk(size: Int) async throws {
    let place = try TemporaryDirectory()
    for round in 0..<3 {
      let engine = try place.engine()
      try await engine.apply([
        .write(value(round, count: 40_000), key: key(1)), .write(value(1, count: 20_000), key: key(1)),
        .write(value(2, count: size), key: key(1)), .write(value(3, count: 30_000), key: key(round + 2)),
      ])
      try await engine.close()
    }
    let engine = try place.engine()
    #expect(try await engine.read(key: key(1)) == value(2, count: size))
    #expect(try await engine.keyCount() == 4)
    try await engine.removeAllData()
    try await engine.close()
    #expect(try await place.engine().keyCount() == 0)
  }

  @Test("With corrupted meta pages reads return the entries or throw")
  func corruptedHeader() async throws {
    let place = try await filled()
    let whole = try Data(contentsOf: place.dataFile)
    for offset in Array(0..<152) + Array(4096..<4248) {
      for corruption in [UInt8(0xFF), 0x01] {
        var corrupted = whole
        corrupted[offset] ^= corruption
        try corrupted.write(to: place.dataFile)
        let code = await code {
          let engine = try place.engine()
          let entries = try await engine.readAllDataAndKeys()
          if entries.count != 500 { throw StorageError(.corrupted, "Entries are missing.") }
          try await engine.write(Data([1]), key: CacheKey(verbatim: "new"))
        }
        // Another root, or other flags, may belong to another program's database.
        #expect(code == nil || code == .corrupted || code == .unsupported, "byte \(offset)")
      }
    }
  }

  @Test("A header that leaves no space for a root is corruption")
  func noRoomForRoot() async throws {
    let place = try await filled()
    var bytes = try Data(contentsOf: place.dataFile)
    for meta in [0, 4096] {
      // The number of the last used page.
      bytes.replaceSubrange(meta + 136..<meta + 144, with: [1, 0, 0, 0, 0, 0, 0, 0])
    }
    try bytes.write(to: place.dataFile)
    #expect(await code { _ = try place.engine() } == .corrupted)
  }

  @Test(
    "An entry with flags that no entry has here is corruption",
    arguments: ["metadata", "entries", "large value"],
    [UInt8(2), 4, 8])
  func wildFlags(name: String, flag: UInt8) async throws {
    let place = try await filled()
    let engine = try place.engine()
    try await engine.write(value(1, count: 10_000), key: CacheKey(verbatim: "large value"))
    try await engine.close()
    var bytes = try Data(contentsOf: place.dataFile)
    // Before the key, an entry has its flags and the size of the key, two bytes each.
    var rest = bytes.startIndex..<bytes.endIndex
    var count = 0
    while let found = bytes.range(of: Data(name.utf8), in: rest) {
      rest = found.upperBound..<bytes.endIndex
      let flags = found.lowerBound - 4
      guard bytes[flags + 2] == name.utf8.count, bytes[flags + 3] == 0, bytes[flags + 1] == 0 else {
        continue
      }
      bytes[flags] |= flag
      count += 1
    }
    #expect(count > 0)
    try bytes.write(to: place.dataFile)
    let code = await code {
      let engine = try place.engine()
      _ = try await engine.readAllDataAndKeys()
      try await engine.write(Data([1]), key: CacheKey(verbatim: "new"))
    }
    // A flag that makes an entry a named tree may belong to another program's database.
    #expect(code == .corrupted || (flag == 2 && code == (name == "entries" ? nil : .unsupported)))
  }

  @Test("Metadata with a sequence out of range is corruption")
  func impossibleMetadata() async throws {
    let place = try await filled()
    var bytes = try Data(contentsOf: place.dataFile)
    // The signature, the version and the sequence number.
    let signature = Data("STKR\u{1}\0\0\0".utf8)
    var rest = bytes.startIndex..<bytes.endIndex
    while let found = bytes.range(of: signature, in: rest) {
      bytes.replaceSubrange(found.upperBound..<found.upperBound + 8, with: Data(repeating: 0xFF, count: 8))
      rest = found.upperBound..<bytes.endIndex
    }
    try bytes.write(to: place.dataFile)
    #expect(
      await code { try await place.engine().write(Data([1]), key: CacheKey(verbatim: "new")) } == .corrupted)
  }

  @Test("Zeros in place of the file or its pages are refused", arguments: [0, 8192])
  func zeros(from start: Int) async throws {
    let place = try await filled()
    var bytes = try Data(contentsOf: place.dataFile)
    bytes.replaceSubrange(start..., with: Data(count: bytes.count - start))
    try bytes.write(to: place.dataFile)
    #expect(await code { _ = try place.engine() } == .corrupted)
  }

  @Test(
    "A page in use that was replaced by zeros, noise or another kind of page is refused", arguments: 0..<3)
  func corruptedPage(kind: Int) async throws {
    let place = try await filled()
    let whole = try Data(contentsOf: place.dataFile)
    var refused = 0
    for start in stride(from: 8_192, to: whole.count, by: 4_096) {
      var bytes = whole
      let other = [
        Data(count: 4_096), Data((0..<4_096).map { UInt8(truncatingIfNeeded: $0 &* 197 &+ 31) }),
        Data(whole[(start == 8_192 ? 12_288 : 8_192)...].prefix(4_096)),
      ][kind]
      bytes.replaceSubrange(start..<start + 4_096, with: other)
      try bytes.write(to: place.dataFile)
      let code = await code {
        let engine = try place.engine()
        #expect(try await engine.readAllDataAndKeys().count == 500)
        try await engine.write(Data([1]), key: CacheKey(verbatim: "new"))
      }
      #expect(code == nil || code == .corrupted || code == .unsupported, "page at \(start)")
      if code != nil { refused += 1 }
    }
    // All but the few free pages.
    #expect(refused > whole.count / 4_096 / 2)
  }

  @Test("A text file in place of the database is refused and left unchanged")
  func textFile() async throws {
    let place = try TemporaryDirectory()
    let text = Data(String(repeating: "This is a letter to my grandmother. ", count: 1000).utf8)
    try text.write(to: place.dataFile)
    do {
      _ = try place.engine()
      Issue.record("A letter was opened as a database.")
    } catch let error as StorageError {
      #expect(error.code == .corrupted)
      #expect(error.description.contains(place.dataFile.path))
    }
    #expect(try Data(contentsOf: place.dataFile) == text)
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.url.path) == ["data.mdb"])
  }

  @Test("An empty file is a truncated database, not a new one")
  func emptyFile() async throws {
    let place = try TemporaryDirectory()
    try Data().write(to: place.dataFile)
    #expect(await code { _ = try place.engine() } == .corrupted)
    #expect(try Data(contentsOf: place.dataFile) == Data())
  }

  @Test("A lock file without its database is a lost database, not a new place")
  func lostDatabase() async throws {
    let place = try TemporaryDirectory()
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    try await engine.close()
    try FileManager.default.moveItem(at: place.dataFile, to: place.neighbor)
    #expect(await code { _ = try place.engine() } == .corrupted)
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.url.path) == ["lock.mdb"])
    try FileManager.default.moveItem(at: place.neighbor, to: place.dataFile)
    #expect(try await place.engine().read(key: key(1)) == value(1))
  }

  @Test("A new database can be created whatever the lock file contains")
  func corruptedLockFile() async throws {
    let place = try TemporaryDirectory()
    try Data(repeating: 0xAB, count: 100_000).write(to: place.url.appending(path: "lock.mdb"))
    let engine = try place.engine()
    try await engine.write(value(1), key: key(1))
    #expect(try await engine.read(key: key(1)) == value(1))
  }

  @Test("Another program's environment is refused and left unchanged")
  func foreign() async throws {
    let place = try TemporaryDirectory()
    try writeForeignEntry(named: "colour", in: place.url.path)
    let before = try Data(contentsOf: place.dataFile)
    #expect(await code { _ = try place.engine() } == .unsupported)
    try FileManager.default.removeItem(at: place.url.appending(path: "lock.mdb"))
    #expect(await code { _ = try place.engine() } == .unsupported)
    #expect(try Data(contentsOf: place.dataFile) == before)
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.url.path) == ["data.mdb"])
  }

  @Test("Another program's entry under the name of ours does not identify the environment as ours")
  func foreignNamesake() async throws {
    let place = try TemporaryDirectory()
    try writeForeignEntry(named: "metadata", in: place.url.path)
    #expect(await code { _ = try place.engine() } == .unsupported)
  }

  private func writeForeignEntry(named name: String, in path: String) throws {
    var environment: OpaquePointer?
    #expect(mdb_env_create(&environment) == 0)
    defer { mdb_env_close(environment) }
    #expect(mdb_env_open(environment, path, 0, 0o644) == 0)
    var transaction: OpaquePointer?
    var main: MDB_dbi = 0
    #expect(mdb_txn_begin(environment, nil, 0, &transaction) == 0)
    #expect(mdb_dbi_open(transaction, nil, 0, &main) == 0)
    var bytes = Array(name.utf8)
    let result = bytes.withUnsafeMutableBytes { bytes in
      var name = MDB_val(mv_size: bytes.count, mv_data: bytes.baseAddress)
      var value = name
      return mdb_put(transaction, main, &name, &value, 0)
    }
    #expect(result == 0)
    #expect(mdb_txn_commit(transaction) == 0)
  }

  #if os(Linux)
    @Test("A failed write of a meta page is reported, and the engine continues without it")
    func failedMetaPage() async throws {
      let place = try TemporaryDirectory()
      let engine = try place.engine(durability: .full)
      try await engine.write(value(1), key: key(1))
      // LMDB writes meta pages through a separate descriptor, the only write-only one.
      let descriptor = try #require(
        FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap(Int32.init).first {
          fcntl($0, F_GETFL) & O_ACCMODE == O_WRONLY
            && (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)"))
              == place.dataFile.path
        })
      let unwritable = open("/dev/null", O_RDONLY)
      #expect(dup2(unwritable, descriptor) == descriptor)
      close(unwritable)

      let reading = Task {
        for _ in 0..<1000 {
          let stored = try await engine.read(key: key(1))
          #expect(stored == value(1))
        }
      }
      #expect(await code { try await engine.write(value(2), key: key(2)) } == .io)
      try await reading.value
      #expect(try await engine.allKeys() == [key(1)])
      try await engine.write(value(3), key: key(3))
      #expect(try await engine.allKeys() == [key(1), key(3)])
    }
  #endif

  @Test("An unusable lock file leaves at most an empty database, which can be used later")
  func unusableLockFile() async throws {
    let place = try TemporaryDirectory()
    let lock = place.url.appending(path: "lock.mdb")
    try FileManager.default.createDirectory(at: lock, withIntermediateDirectories: false)
    #expect(await code { _ = try place.engine() } == .corrupted)
    let names = try FileManager.default.contentsOfDirectory(atPath: place.url.path)
    #expect(names.sorted() == ["data.mdb", "lock.mdb"])
    try FileManager.default.removeItem(at: lock)
    let engine = try place.engine()
    #expect(try await engine.keyCount() == 0)
    try await engine.write(value(1), key: key(1))
  }
}
