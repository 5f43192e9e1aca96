import Foundation
import StockroomCSQLite
import StockroomCore
import TestFixtures
import Testing

@Suite("Commands that bring data from one place to another") struct TransferTests {
  /// Fills a place with entries of different timestamps, whose order is not that of their keys.
  private func fill(_ place: DataPlace) async throws -> [StorageEntry] {
    try await place.withEngine { engine in
      for key in ["c", "a", "b"] { try await engine.write(Data(key.utf8), key: CacheKey(verbatim: key)) }
      try await engine.write(Data("again".utf8), key: "c")
      return try await engine.readAllEntries()
    }
  }

  private func expect(_ place: DataPlace, _ entries: [StorageEntry]) async throws {
    let found = try await place.withEngine { try await $0.readAllEntries() }
    #expect(found == entries)
  }

  @Test(
    "A copy has the entries, their times and their order",
    arguments: zip(DataPlace.engines, ["files", "sqlite", "lmdb", "leveldb"]))
  func copy(from: String, to: String) async throws {
    try await withTemporaryDirectory { directory in
      let (source, target) = (
        DataPlace(from, in: directory, named: "source"), DataPlace(to, in: directory, named: "target")
      )
      let entries = try await fill(source)
      #expect(
        try await source.run("copy", "--to", target.url).standardOutput
          == "\(target.url): 3 entries copied and compared\n")
      try await expect(target, entries)
      try await expect(source, entries)
      #expect(try await source.failure("copy", "--to", target.url).contains("not empty"))
      let merged = try await source.run("copy", "--to", target.url, "--merge", "--format", "json")
      #expect(merged.standardOutput == #"{"areTimesVerified":true,"bytes":7,"entries":3,"written":0}"# + "\n")
    }
  }

  @Test("A copy can have other layers than its source")
  func layers() async throws {
    try await withTemporaryDirectory { directory in
      let (source, target) = (
        DataPlace("sqlite", in: directory, named: "source"),
        DataPlace("sqlite", in: directory, named: "target")
      )
      try await source.run("put", "--create", "k", "--value", "1", "--layer", "compressed")
      try await source.run("copy", "--layer", "compressed", "--to", target.url, "--to-layer", "namespaced=n")
      #expect(try await target.run("list", "--values").standardOutput == "n/k\t1\n")
    }
  }

  @Test("A place is not copied into itself, whatever its layers and spelling", arguments: ["--merge", nil])
  func copyingIntoItself(option: String?) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory, named: "source")
      let entries = try await fill(place)
      let other = "sqlite:" + directory.appending(path: "x/../source").path
      let file = place.url + "/data.sqlite3"
      let layered = [place.url, "--to-layer", "namespaced=n"]
      for arguments in [[other], layered, [file]].map({ ["--to"] + $0 }) {
        let arguments = ["copy", place.url] + arguments + (option.map { [$0] } ?? [])
        let output = try await CommandLineTool.run(arguments)
        #expect(output.status == 64)
        #expect(output.errorLines.count == 1)
        #expect(output.standardError.contains("The source and the target are the same place."))
      }
      try await expect(place, entries)
    }
  }

  @Test("A backup opens as the place does", arguments: DataPlace.engines)
  func backup(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let (place, backup) = (
        DataPlace(engine, in: directory), DataPlace(engine, in: directory, named: "backup")
      )
      let entries = try await fill(place)
      #expect(
        try await place.run("backup", "--to", backup.directory.path).standardOutput
          == "\(place.url): backed up to \(backup.directory.path)\n")
      try await expect(backup, entries)
      #expect(
        try await place.failure("backup", "--to", backup.directory.path).contains("is not an empty directory")
      )
      #expect(try contents(of: directory).sorted() == ["backup", "place"])
    }
  }

  @Test("What is dumped is restored into a place of any engine", arguments: DataPlace.engines)
  func archives(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      let archive = directory.appending(path: "archive").path
      let entries = try await fill(place)
      #expect(
        try await place.run("dump", "--to", archive).standardOutput.hasPrefix("\(archive): 3 entries in "))
      #expect(try await place.failure("dump", "--to", archive).contains("already exists"))
      let object = try #require(
        try objects(try await place.run("dump", "--to", archive, "--replace", "--format", "json")).first)
      #expect(object["entryCount"] as? Int == 3)
      #expect(object["isSnapshot"] as? Bool == true)

      let restored = DataPlace("lmdb", in: directory, named: "restored")
      let output = try await CommandLineTool.run("restore", archive, "--to", restored.url)
      #expect(output.standardError == "")
      #expect(output.standardOutput == "\(restored.url): 3 entries restored\n")
      try await expect(restored, entries)
      let again = try await CommandLineTool.run("restore", archive, "--to", restored.url)
      #expect(again.status == 1)
      #expect(again.standardError.hasPrefix("stockroom: \(restored.url): "))
      let merged = try await CommandLineTool.run("restore", archive, "--to", restored.url, "--merge")
      #expect(merged.status == 0)

      // Through a pipe.
      let piped = DataPlace("sqlite", in: directory, named: "piped")
      let pipe = try await CommandLineTool.run(
        ["dump", place.url], by: #""$@" | "$1" restore --to '\#(piped.url)'"#)
      #expect(pipe.standardOutput == "\(piped.url): 3 entries restored\n")
      #expect(pipe.standardError == "")
      try await expect(piped, entries)
    }
  }

  @Test(
    "A value that was dumped is restored whatever its size",
    .enabled(if: TestRun.isExhaustive, "This takes several gigabytes of memory."))
  func largeValue() async throws {
    try await withTemporaryDirectory { directory in
      let (place, restored) = (
        DataPlace("files", in: directory), DataPlace("files", in: directory, named: "restored")
      )
      let (file, archive) = (try zeros(1 << 30 + 1, in: directory), directory.appending(path: "archive").path)
      try await place.run("put", "--create", "k", "--file", file.path, "--layer", "compressed")
      try await place.run("dump", "--to", archive, "--layer", "compressed")
      let output = try await CommandLineTool.run(
        "restore", archive, "--to", restored.url, "--to-layer", "compressed")
      #expect(output.standardError == "")
      try await restored.run("verify", "--layer", "compressed")
    }
  }

  @Test("The target of a copy that is not finished is neither dumped nor backed up, and verify says why")
  func unfinishedCopy() async throws {
    try await withTemporaryDirectory { directory in
      let (place, marker) = (DataPlace("sqlite", in: directory), "stockroom: unfinished copy")
      // The marker that an interrupted copy leaves.
      try await place.run("put", "--create", marker, "--value", "")
      for arguments in [
        ["dump", "--to", directory.path + "/archive"], ["backup", "--to", directory.path + "/backup"],
        ["verify"],
      ] {
        let output = try await CommandLineTool.run([arguments[0], place.url] + arguments.dropFirst())
        #expect(output.status == 1)
        #expect(
          output.standardError.hasPrefix(
            "stockroom: \(place.url): unsupported: The engine has only a part of the entries, "))
        #expect(output.standardError.contains("\"\(marker)\""))
      }
      #expect(try contents(of: directory) == ["place"])
      try await place.run("remove", marker)
      try await place.run("verify")
    }
  }

  @Test("What fails makes no place, and leaves nothing half")
  func failures() async throws {
    try await withTemporaryDirectory { directory in
      let (place, target) = (
        DataPlace("sqlite", in: directory), DataPlace("lmdb", in: directory, named: "target")
      )
      let archive = directory.appending(path: "archive")
      for arguments in [
        ["copy", place.url, "--to", target.url], ["backup", place.url, "--to", target.directory.path],
        ["dump", place.url, "--to", archive.path], ["restore", archive.path, "--to", target.url],
        ["restore", "--to", target.url], ["import", archive.path, "--to", target.url],
      ] {
        let output = try await CommandLineTool.run(arguments)
        #expect(output.status == 1)
        #expect(output.errorLines.count == 1)
        #expect(output.standardOutput == "")
      }
      #expect(try contents(of: directory) == [])

      _ = try await fill(place)
      try await place.run("dump", "--to", archive.path)
      var bytes = try Data(contentsOf: archive)
      bytes[bytes.count / 2] ^= 1
      try bytes.write(to: archive)
      let output = try await CommandLineTool.run("restore", archive.path, "--to", target.url)
      #expect(output.status == 1)
      #expect(output.standardError.contains("corrupted: "))
      let closed = try await CommandLineTool.run(
        ["dump", place.url],
        by:
          #"{ while [ ! -e "$0.closed" ]; do sleep 0.01; done; "$@"; echo $? >&2; } | { exec <&-; : > "$0.closed"; }"#
          .replacing("$0", with: archive.path))
      #expect(closed.standardError == "\(128 + SIGPIPE)\n")
      #expect(try contents(of: directory).sorted() == ["archive", "archive.closed", "place"])
    }
  }

  @Test(
    "Wrong usage has status 64",
    arguments: [
      (["copy", "sqlite:x"], "Missing expected argument '--to <place>'"),
      (["copy", "sqlite:x", "--to", "nonsense"], "names no engine"),
      (["copy", "sqlite:x", "--to", "lmdb:y", "--to-layer", "nonsense"], "There is no layer nonsense."),
      (["backup", "sqlite:x", "--to", ""], "The path for --to is empty."),
      (["dump", "sqlite:x", "--replace"], "belong to --to"),
      (["dump", "sqlite:x", "--format", "json"], "belong to --to"),
      (["restore", "", "--to", "sqlite:x"], "The path of the archive is empty."),
      (["import", "x", "--to", "sqlite:x", "--kind", "nonsense"], "'nonsense' is invalid for '--kind"),
      (
        ["import", "x", "--to", "sqlite:x", "--kind", "bodega-disk", "--table", "x"],
        "--table is for databases of Bodega's"
      ),
    ])
  func usage(arguments: [String], message: String) async throws {
    let output = try await CommandLineTool.run(arguments)
    #expect(output.status == 64)
    #expect(output.errorLines.count == 1)
    #expect(output.standardError.contains(message), "\(output.standardError)")
  }

  @Test("A database of Stockroom is not imported: the error names the command that copies it")
  func importingStockroom() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      let output = try await CommandLineTool.run(
        "import", place.directory.path + "/data.sqlite3", "--to", "lmdb:\(directory.path)/new")
      #expect(output.status == 1)
      #expect(output.errorLines.count == 1)
      #expect(output.standardError.contains("is not a database of Bodega"))
      #expect(output.standardError.contains("use `stockroom copy`"))
      #expect(try contents(of: directory) == ["place"])
    }
  }

  @Test("What another library has left is imported")
  func importing() async throws {
    try await withTemporaryDirectory { directory in
      let old = directory.appending(path: "old.sqlite3")
      var database: OpaquePointer?
      try #require(sqlite3_open(old.path, &database) == SQLITE_OK)
      let sql = """
        CREATE TABLE data (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL, createdAt TEXT, updatedAt TEXT);
        INSERT INTO data VALUES ('note', x'7b7d', '2023-01-01 10:00:00', '2023-01-02 10:00:00');
        """
      #expect(sqlite3_exec(database, sql, nil, nil, nil) == SQLITE_OK)
      sqlite3_close(database)
      let place = DataPlace("files", in: directory)
      let output = try await CommandLineTool.run("import", old.path, "--to", place.url)
      #expect(output.standardError == "")
      #expect(output.standardOutput == "\(place.url): 1 entry imported and compared\n")
      #expect(try await place.run("list", "--values").standardOutput == "note\t{}\n")
      let merged = try await CommandLineTool.run(
        "import", old.path, "--to", place.url, "--merge", "--format", "json")
      #expect(try objects(merged).first?["alreadyPresent"] as? Int == 1)
      #expect(try await CommandLineTool.run("import", old.path, "--to", place.url).status == 1)
      // The marker that an interrupted copy leaves.
      let marker = "stockroom: unfinished copy"
      try await place.run("put", marker, "--value", "")
      let refused = try await CommandLineTool.run("import", old.path, "--to", place.url, "--merge")
      #expect(refused.status == 1)
      #expect(
        refused.standardError.hasPrefix("stockroom: \(place.url): unsupported: The target has only a part "))
      try await place.run("remove", marker)
      let link = directory.deletingLastPathComponent().appending(
        path: "link to " + directory.lastPathComponent)
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: directory)
      defer { try? FileManager.default.removeItem(at: link) }
      for path in [directory.path, directory.path + "/new", link.path + "/new", link.path + "/new/er"] {
        let inside = try await CommandLineTool.run("import", directory.path, "--to", "lmdb:" + path)
        #expect(inside.status == 1)
        #expect(inside.standardError.contains("inside of the source"))
        #expect(!FileManager.default.fileExists(atPath: directory.path + "/new"))
      }
    }
  }
}
