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
        // A link leads there, too.
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
