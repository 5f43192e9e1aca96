import Foundation
import StockroomCore
import StockroomEngines
import Testing

#if os(Linux)
  import TestFixtures
#endif

@Suite("Commands that only read") struct ReadOnlyTests {
  /// Runs every command that only reads.
  private func read(_ place: DataPlace) async throws {
    #expect(try await place.run("list", "--values").standardOutput == "a\t1\nb\t2\n")
    #expect(try await place.run("list", "--long").lines.count == 2)
    #expect(try await place.run("get", "b").standardOutput == "2")
    #expect(try await place.run("count").standardOutput == "2\n")
    try await place.run("verify")
  }

  private func fill(_ place: DataPlace) async throws {
    try await place.withEngine { try await $0.write([("a", Data("1".utf8)), ("b", Data("2".utf8))]) }
  }

  @Test("They leave every file as it was", arguments: ["sqlite", "files", "lmdb"])
  func unchanged(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await fill(place)
      let before = try place.files()
      try await read(place)
      var after = try place.files()
      // Readers change LMDB's reader table.
      if engine == "lmdb" { after["lock.mdb"] = before["lock.mdb"] }
      #expect(after == before)
    }
  }

  @Test("What a process that died has left in SQLite's log is read, and stays there")
  func log() async throws {
    try await withTemporaryDirectory { directory in
      let (open, place) = (
        DataPlace("sqlite", in: directory, named: "open"), DataPlace("sqlite", in: directory)
      )
      try await open.withEngine { engine in
        try await engine.write([("a", Data("1".utf8)), ("b", Data("2".utf8))])
        // The files that a process leaves when it is killed at this point.
        try FileManager.default.copyItem(at: open.directory, to: place.directory)
      }
      let before = try place.files()
      #expect(try #require(before["data.sqlite3-wal"]).count > 0)
      try await read(place)
      let after = try place.files()
      for name in ["data.sqlite3", "data.sqlite3-wal"] { #expect(after[name] == before[name]) }
      try await place.run("put", "c", "--value", "3")
      #expect(try await place.run("list").standardOutput == "a\nb\nc\n")
    }
  }

  #if os(Linux)
    @Test(
      "They work on read-only media, where others say that they cannot",
      .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)), arguments: DataPlace.engines)
    func media(_ engine: String) async throws {
      let disk = try SmallDisk("size=16m")
      // A name that has to be escaped in a URL.
      let place = DataPlace(engine, in: disk.url, named: "a b%20?#é")
      try await fill(place)
      try disk.makeReadOnly()
      if ["sqlite", "files"].contains(engine) {
        try await read(place)
      } else {
        #expect(try await place.failure("count").hasPrefix("stockroom: \(place.url): readOnly: "))
      }
      #expect(
        try await place.failure("put", "a", "--value", "3").hasPrefix("stockroom: \(place.url): readOnly: "))
      #expect(try await place.failure("remove", "a").hasPrefix("stockroom: \(place.url): readOnly: "))
    }

    @Test(
      "A log with nothing in it hinders nothing on read-only media",
      .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
    func emptyLogOnMedia() async throws {
      let disk = try SmallDisk("size=16m")
      let place = DataPlace("sqlite", in: disk.url)
      try await fill(place)
      try Data().write(to: place.directory.appending(path: "data.sqlite3-wal"))
      try disk.makeReadOnly()
      try await read(place)
    }

    @Test(
      "A log that was left on read-only media is an error, and not left out",
      .enabled(if: SmallDisk.isPossible, Comment(rawValue: SmallDisk.obstacle)))
    func logOnMedia() async throws {
      let disk = try SmallDisk("size=16m")
      let (open, place) = (
        DataPlace("sqlite", in: disk.url, named: "open"), DataPlace("sqlite", in: disk.url)
      )
      try await open.withEngine { engine in
        try await engine.write(Data("1".utf8), key: "a")
        try FileManager.default.copyItem(at: open.directory, to: place.directory)
      }
      try FileManager.default.removeItem(at: place.directory.appending(path: "data.sqlite3-shm"))
      try disk.makeReadOnly()
      #expect(
        try await place.failure("count").contains(
          "cannot be read where it cannot be written: a process that died"))
    }
  #endif
}
