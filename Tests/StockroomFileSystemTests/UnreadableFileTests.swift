#if os(Linux)
  import Foundation
  import Glibc
  import StockroomCore
  import TestFixtures
  import Testing

  @testable import StockroomFileSystem

  /// Files and directories that the user may remove, but not read.
  @Suite("Files: unreadable files of others")
  struct UnreadableFileTests {
    @Test("A removal of an unreadable file is completed after its process has died", .ownThreads)
    func removalOfUnreadable() async throws {
      // In a separate process, which changes its user: root may read every file.
      await #expect(processExitsWith: .success) {
        if geteuid() == 0 { try #require(seteuid(65_534) == 0) }
        let place = try TemporaryDirectory()
        for steps in [[.remove("x"), .remove("y")], [.removeAll]] as [[Transaction.Step]] {
          let engine = try place.open()
          try await engine.write(data("1"), key: "x")
          try data("theirs").write(to: place.file("y.entry"))
          try #require(chmod(place.file("y.entry").path, 0) == 0)
          let connection = try DiskConnection(directory: place.url.path, durability: .full)
          try connection.withLock {
            let boundary = try connection.reserveSequenceNumbers(0, at: .now())
            try connection.journal.begin(Transaction(boundary: boundary, steps: steps))
          }
          connection.release()
          try await engine.close()
          let again = try place.open()
          #expect(try await again.allKeys() == [])
          try await again.close()
        }
      }
    }

    @Test("A directory that only looks like one of long keys is not opened", .ownThreads)
    func unreadableDirectory() async throws {
      await #expect(processExitsWith: .success) {
        if geteuid() == 0 { try #require(seteuid(65_534) == 0) }
        let place = try TemporaryDirectory()
        let foreign = place.file("old.more")
        try FileManager.default.createDirectory(at: foreign, withIntermediateDirectories: true)
        try #require(chmod(foreign.path, 0) == 0)
        let engine = try place.open()
        try await engine.write([("a", data("1")), ("b", data("1"))])
        #expect(try await engine.keyCount() == 2)
        #expect(try await engine.scan(.all, limit: nil).count == 2)
        try await engine.removeAllData()
        try await engine.verify()
        try await engine.close()
        try #require(chmod(foreign.path, 0o700) == 0)
      }
    }
  }
#endif
