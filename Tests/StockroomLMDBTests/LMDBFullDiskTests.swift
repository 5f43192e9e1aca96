import Foundation
import StockroomCore
import TestFixtures
import StockroomLMDB
import Testing

#if os(Linux)
  import Glibc

  @Suite(.enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
  struct LMDBFullDiskTests {
    @Test(
      "A full disk refuses writes, keeps the entries, and accepts writes once there is space",
      arguments: [500, 20_000])
    func fullDisk(valueSize: Int) async throws {
      let disk = try SmallDisk("size=4m")
      let directory = disk.directory
      try disk.fill(1 << 20)
      let engine = try LMDBStorageEngine(directory: directory)
      var written = 0
      var refusal: StorageError.Code?
      while refusal == nil && written < 10_000 {
        refusal = await code {
          try await engine.write(value(written, count: valueSize), key: key(written))
          written += 1
        }
      }
      #expect(refusal == .diskFull)
      #expect(
        await code {
          try await engine.write((0..<500).map { (key(50_000 + $0), value($0, count: 10_000)) })
        } == .diskFull)
      #expect(try await engine.keyCount() == written)
      for number in 0..<written {
        #expect(try await engine.read(key: key(number)) == value(number, count: valueSize))
      }

      let another = try LMDBStorageEngine(directory: directory)
      #expect(try await another.keyCount() == written)

      try disk.makeRoom()
      try await engine.write(value(written, count: valueSize), key: key(written))
      try await engine.remove(key: key(0))
      #expect(try await engine.keyCount() == written)
      try await engine.close()
      try await another.close()
      #expect(try await LMDBStorageEngine(directory: directory).keyCount() == written)
    }

    @Test("Opening on a full disk throws and leaves at most an empty database")
    func openOnFullDisk() async throws {
      let disk = try SmallDisk("size=1m")
      let url = disk.url.appending(path: "store")
      try FileManager.default.createDirectory(at: url, withIntermediateDirectories: false)
      for spare in [0, 4096, 65_536, 73_728, 81_920] {
        try disk.fill(leaving: spare)
        let code = await code {
          try await LMDBStorageEngine(directory: FileManager.Directory(url: url)).close()
        }
        #expect(code == .diskFull || (code == nil && spare > 70_000))
        let names = try FileManager.default.contentsOfDirectory(atPath: url.path)
        if code != nil { #expect(names.allSatisfy { $0 == "data.mdb" }) }
        try disk.makeRoom()
      }
      let engine = try LMDBStorageEngine(directory: FileManager.Directory(url: url))
      #expect(try await engine.keyCount() == 0)
      try await engine.write(value(1), key: key(1))
    }

    @Test(
      "On a full disk all entries can be removed, alone and in one batch with new entries",
      arguments: [500, 20_000])
    func removalOnFullDisk(valueSize: Int) async throws {
      for isAlone in [true, false] {
        let disk = try SmallDisk("size=3m")
        let directory = disk.directory
        let engine = try LMDBStorageEngine(directory: directory)
        var number = 0
        while await code(of: { try await engine.write(value(number, count: valueSize), key: key(number)) })
          == nil
        {
          number += 1
        }
        // Small entries fill the remaining space.
        while await code(of: { try await engine.write(value(number), key: key(number)) }) == nil {
          number += 1
        }
        if isAlone {
          try await engine.removeAllData()
        } else {
          try await engine.apply([.removeAll, .write(value(7), key: key(7))])
          #expect(try await engine.allKeys() == [key(7)])
        }
        for number in 0..<20 { try await engine.write(value(number, count: valueSize), key: key(number)) }
        #expect(try await engine.keyCount() == 20)
        try await engine.close()
      }
    }

    @Test("A read-only file system is reported as such")
    func readOnly() async throws {
      let disk = try SmallDisk("size=4m")
      let directory = disk.directory
      let engine = try LMDBStorageEngine(directory: directory)
      try await engine.write(value(1), key: key(1))
      try await engine.close()
      try disk.makeReadOnly()
      #expect(await code { _ = try LMDBStorageEngine(directory: directory) } == .readOnly)
      let missing = FileManager.Directory(url: disk.url.appending(path: "other"))
      #expect(await code { _ = try LMDBStorageEngine(directory: missing) } == .readOnly)
    }
  }
#endif
