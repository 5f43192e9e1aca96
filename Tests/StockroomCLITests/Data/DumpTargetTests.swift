import Foundation
import Testing

@Suite("The file of an archive") struct DumpTargetTests {
  @Test(
    "No archive replaces a file of the place that it is from",
    arguments: [
      ("sqlite", ["data.sqlite3"]), ("lmdb", ["data.mdb", "lock.mdb"]),
      ("leveldb", ["Stockroom.leveldb/CURRENT", "Stockroom.leveldb/STOCKROOM"]),
      ("files", [".stockroom/state", "k.entry"]),
    ])
  func ownFile(engine: String, names: [String]) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      for name in names {
        let file = place.directory.appending(path: name).path
        try #require(FileManager.default.fileExists(atPath: file))
        // The path may also be a symbolic link to the file.
        let link = directory.appending(path: "link").path
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: file)
        for path in [file, link] {
          let message = try await place.failure("dump", "--to", path, "--replace")
          #expect(message.contains("is a file of the place itself, so no archive is written to it."))
        }
        try FileManager.default.removeItem(atPath: link)
      }
      #expect(try await place.run("get", "k").standardOutput == "1")
    }
  }

  @Test(
    "No archive is written where the log of changes is while there are subscribers",
    arguments: [("sqlite", "data.sqlite3-changes"), ("lmdb", "changes.log")])
  func logOfChanges(engine: String, name: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      let file = place.directory.appending(path: name).path
      let message = try await place.failure("dump", "--to", file)
      #expect(message.contains("is a file of the place itself, so no archive is written to it."))
      #expect(!FileManager.default.fileExists(atPath: file))
      // Such an archive would prevent the creation of the log.
      try await place.withEngine { engine in
        var changes = try await engine.changes().makeAsyncIterator()
        #expect(FileManager.default.fileExists(atPath: file))
        try await engine.write(Data("2".utf8), key: "k")
        #expect(await changes.next() != nil)
      }
    }
  }

  @Test("An archive beside the files of the place is written and replaced", arguments: DataPlace.engines)
  func beside(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      let archive = place.directory.appending(path: "data.archive").path
      try await place.run("dump", "--to", archive)
      try await place.run("dump", "--to", archive, "--replace")
      try await place.run("verify")
    }
  }
}
