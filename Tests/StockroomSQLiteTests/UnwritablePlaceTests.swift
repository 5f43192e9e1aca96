import Foundation
import StockroomCore
import StockroomSQLite
import TestFixtures
import Testing

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

#if os(Linux) || os(macOS)
  /// In separate processes that give up root's privileges, because root may write everywhere.
  @Suite("A read-only engine on an unwritable place") struct UnwritablePlaceTests {
    @Test("It reads everything, in many concurrent tasks, and leaves every file unchanged", .ownThreads)
    func readsEverything() async {
      await #expect(processExitsWith: .success) {
        try giveUpRights()
        let place = try TestPlace()
        let engine = try SQLiteStorageEngine(directory: place.directory)
        for number in 0..<200 { try await engine.write(data("value \(number)"), key: key(number)) }
        try await engine.write(Data(repeating: 7, count: 2 << 20), key: key(200))
        try await engine.write(Data(), key: key(0))
        try await engine.remove(key: key(1))
        let expected = try await engine.readAllEntries()
        try await engine.close()
        let before = try place.contents()
        try place.forbidWriting()
        defer { place.allowWriting() }

        let reader = try place.openReader()
        let found = try await withThrowingTaskGroup { group in
          for _ in 0..<8 { group.addTask { try await reader.readAllEntries() } }
          return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(found == Array(repeating: expected, count: 8))
        #expect(try await reader.keyCount() == expected.count)
        #expect(
          try await reader.readEntries(keys: [key(200), key(1), key(0)]) == [expected[0], expected[199]])
        #expect(try await reader.createdAt(key: key(200)) == expected[199].createdAt)
        #expect(try await reader.scan(.all, limit: nil).count == expected.count)
        #expect(try await reader.allKeys().count == expected.count)
        #expect(
          try await reader.withTransaction { try $0.read(keys: [key(2), key(1)]) } == [data("value 2")])
        try await reader.verify()
        let backup = FileManager.Directory(url: place.parent.appending(path: "backup"))
        try await reader.backUp(to: backup)
        #expect(try await SQLiteStorageEngine(directory: backup).readAllEntries() == expected)
        await expectError(.readOnly, naming: place.database) { try await reader.remove(key: key(2)) }
        try await reader.close()
        #expect(try place.contents() == before)
      }
    }

    @Test("It stops reading if the database is written to after all", .ownThreads)
    func noticesChange() async {
      await #expect(processExitsWith: .success) {
        try giveUpRights()
        let place = try TestPlace()
        let engine = try SQLiteStorageEngine(directory: place.directory)
        try await engine.write(data("1"), key: key(1))
        try await engine.close()
        try place.forbidWriting()
        let reader = try place.openReader()
        #expect(try await reader.read(key: key(1)) == data("1"))
        place.allowWriting()
        let writer = try SQLiteStorageEngine(directory: place.directory)
        try await writer.write(data("2"), key: key(1))
        await expectError(.io, naming: place.database) { try await reader.read(key: key(1)) }
        await expectError(.io, naming: place.database) { try await reader.readAllEntries() }
        let another = try place.openReader()
        #expect(try await another.read(key: key(1)) == data("2"))
        for engine in [reader, another, writer] { try await engine.close() }
      }
    }

    @Test(
      "It reads what a crashed process left in the log, or throws if the shared memory is missing",
      .ownThreads)
    func log() async {
      await #expect(processExitsWith: .success) {
        try giveUpRights()
        let (open, place) = (try TestPlace(), try TestPlace())
        let engine = try SQLiteStorageEngine(directory: open.directory)
        try await engine.write(data("1"), key: key(1))
        // The files that a process leaves when it is killed at this point.
        try FileManager.default.copyItem(at: open.url, to: place.url)
        try await engine.close()
        #expect(try size(of: place.log) != 0)
        let before = try place.contents()
        try place.forbidWriting()
        defer { place.allowWriting() }
        let reader = try place.openReader()
        #expect(try await reader.readAllData() == [data("1")])
        #expect(try await reader.keyCount() == 1)
        try await reader.close()
        #expect(try place.contents() == before)
        place.allowWriting()
        try FileManager.default.removeItem(atPath: place.sharedMemory)
        try place.forbidWriting()
        await expectError(.readOnly, naming: place.log) { try place.openReader() }
      }
    }

    @Test("It sees the commits of an engine in another process", .ownThreads)
    func besideWriter() async throws {
      let place = try TestPlace()
      let writer = try SQLiteStorageEngine(directory: place.directory)
      for value in ["1", "2"] {
        try await writer.write(data(value), key: key(1))
        try place.forbidWriting()
        defer { place.allowWriting() }
        let arguments = [place.url.path(percentEncoded: false), value]
        await #expect(processExitsWith: .success) { [arguments = arguments as [String]] in
          try giveUpRights()
          let reader = try SQLiteStorageEngine(
            directory: .init(url: URL(filePath: arguments[0])), access: .readOnly)
          #expect(try await reader.readAllData() == [data(arguments[1])])
          #expect(try await reader.read(key: key(1)) == data(arguments[1]))
          try await reader.close()
        }
      }
      #expect(try await writer.read(key: key(1)) == data("2"))
      try await writer.close()
    }
  }

  extension TestPlace {
    fileprivate func openReader() throws -> SQLiteStorageEngine {
      try SQLiteStorageEngine(directory: directory, access: .readOnly)
    }

    /// Makes the directory and its files readable and not writable, except through open descriptors.
    fileprivate func forbidWriting() throws {
      for name in try contents().keys { chmod(url.appending(path: name).path(percentEncoded: false), 0o444) }
      for directory in [url: 0o555, parent: 0o755] as [URL: mode_t] {
        try #require(chmod(directory.key.path(percentEncoded: false), directory.value) == 0)
      }
    }

    fileprivate func allowWriting() {
      chmod(url.path(percentEncoded: false), 0o700)
      for suffix in ["", "-wal", "-shm"] { chmod(database + suffix, 0o600) }
    }
  }

  /// Permanently makes this process run as an unprivileged user.
  private func giveUpRights() throws {
    if geteuid() != 0 { return }
    try #require(setgroups(0, nil) == 0 && setgid(65534) == 0 && setuid(65534) == 0)
  }
#endif
