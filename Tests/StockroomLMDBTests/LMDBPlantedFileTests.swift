import Foundation
import StockroomCore
import TestFixtures
import StockroomLMDB
import Testing

/// Rule O5.
@Suite("Planted files and permissions of an LMDB database")
struct LMDBPlantedFileTests {
  @Test("The files and the directory belong to their owner alone")
  func permissions() async throws {
    let parent = try TemporaryDirectory()
    let place = FileManager.Directory(url: parent.url.appending(path: "a/b"))
    let engine = try LMDBStorageEngine(directory: place)
    try await engine.write(value(1), key: key(1))
    #expect(try mode(parent.url.appending(path: "a")) == 0o700)
    #expect(try mode(parent.url.appending(path: "a/b")) == 0o700)
    #expect(try mode(parent.url.appending(path: "a/b/data.mdb")) == 0o600)
    #expect(try mode(parent.url.appending(path: "a/b/lock.mdb")) == 0o600)
  }

  #if os(Linux)
    @Test("Files shared with the group are accessible to it whatever the umask", .ownThreads)
    func groupPermissions() async throws {
      await #expect(processExitsWith: .success) {
        umask(0o077)
        let parent = try TemporaryDirectory()
        let url = parent.url.appending(path: "place")
        let engine = try LMDBStorageEngine(directory: FileManager.Directory(url: url), permissions: .group)
        try await engine.write(value(1), key: key(1))
        for (name, mode) in [("", 0o770), ("data.mdb", 0o660), ("lock.mdb", 0o660)] {
          let attributes = try FileManager.default.attributesOfItem(atPath: url.appending(path: name).path)
          try #require(attributes[.posixPermissions] as? Int == mode)
        }
      }
    }
  #endif

  private func mode(_ url: URL) throws -> Int {
    try #require(try FileManager.default.attributesOfItem(atPath: url.path)[.posixPermissions] as? Int)
  }

  @Test("A hard link in place of the lock file is refused, and not overwritten")
  func hardLink() async throws {
    for contents in [Data(), Data("precious".utf8)] {
      let (place, elsewhere) = (try TemporaryDirectory(), try TemporaryDirectory())
      let target = elsewhere.url.appending(path: "target")
      try contents.write(to: target)
      try FileManager.default.linkItem(at: target, to: place.url.appending(path: "lock.mdb"))
      #expect(await code { _ = try place.engine() } == .corrupted)
      #expect(try Data(contentsOf: target) == contents)
    }
  }

  @Test("A symbolic link in place of a file is not followed", arguments: ["data.mdb", "lock.mdb"])
  func symbolicLink(name: String) async throws {
    for isThere in [true, false] {
      let (place, elsewhere) = (try TemporaryDirectory(), try TemporaryDirectory())
      let target = elsewhere.url.appending(path: "target")
      if isThere { try Data("precious".utf8).write(to: target) }
      try FileManager.default.createSymbolicLink(
        at: place.url.appending(path: name), withDestinationURL: target)
      #expect(await code { _ = try place.engine() } == .corrupted)
      if isThere {
        #expect(try Data(contentsOf: target) == Data("precious".utf8))
      } else {
        #expect(try FileManager.default.contentsOfDirectory(atPath: elsewhere.url.path) == [])
      }
    }
  }

  @Test(
    "A FIFO or a directory in place of a file is refused", arguments: ["data.mdb", "lock.mdb"], [true, false])
  func noFile(name: String, isPipe: Bool) async throws {
    let place = try TemporaryDirectory()
    let path = place.url.appending(path: name).path
    try #require((isPipe ? mkfifo(path, 0o600) : mkdir(path, 0o700)) == 0)
    #expect(await code { _ = try place.engine() } == .corrupted)
    try FileManager.default.removeItem(atPath: path)
    #expect(try await place.engine().keyCount() == 0)
  }
}
