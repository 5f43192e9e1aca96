import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

@testable import StockroomCLI

@Suite("Misuse of the commands about data") struct DataMisuseTests {
  @Test(
    "Wrong usage has status 64, one line, and touches nothing",
    arguments: [
      (["get"], "Missing expected argument '<place>'"),
      (["get", "sqlite:x"], "Missing expected argument '<key>'"),
      (["get", "sqlite:x", ""], "A key must have at least 1 byte"),
      (
        ["put", "sqlite:x", "--create", String(repeating: "k", count: 512)],
        "A key may have 511 bytes of UTF-8"
      ),
      (["put", "sqlite:x", "k", "--value", "1", "--file", "2"], "--value and --file exclude each other."),
      (["put", "sqlite:x", "k", "--file", ""], "The path for --file is empty."),
      (["remove", "sqlite:x"], "Name the keys to remove, or --all."),
      (["remove", "sqlite:x", "k", "--all", "--force"], "--all and keys exclude each other."),
      (["remove", "sqlite:x", "k", "--force"], "--force needs --all."),
      (["remove", "sqlite:x", "--all", "--force", "--hashed"], "--hashed is about keys"),
      (["list", "sqlite:x", "--limit", "-1"], "The limit must be 0 or more, not -1."),
      (["list", "sqlite:x", "--null", "--format", "json"], "--null prints keys only"),
      (["list", "sqlite:x", "--format", "xml"], "'xml' is invalid for '--format <format>'"),
      (["list", "sqlite:x", "--after", String(repeating: "k", count: 512)], "A key may have 511 bytes"),
      (["count", "sqlite:x", "--layer", "nonsense"], "There is no layer nonsense. Layers: compressed, "),
      (["count", "sqlite:x", "--layer", "namespaced"], "The layer namespaced needs a name, such as"),
      (["count", "sqlite:x", "--layer", "namespaced="], "The layer namespaced needs a name, such as"),
      (["count", "sqlite:x", "--layer", "compressed=9"], "The layer compressed takes no parameter."),
      (
        ["count", "sqlite:x", "--layer", "expiring=soon"],
        "A lifetime is a whole number followed by s, m, h or d"
      ),
      (["count", "sqlite:x", "--key-file", "a=b"], "--key-file needs --layer encrypted or hidden."),
      (["count", "sqlite:x", "--names-key-file", "a=b"], "--names-key-file needs --layer hidden."),
      (["copy", "sqlite:x", "--to", "lmdb:y", "--to-key-file", "a=b"], "--to-key-file needs --to-layer"),
      (["count", "sqlite:x", "--names-key-file", "nonsense"], "takes the name of a key and its file"),
      (["count", "sqlite:x", "postgresql://u:secret@h/d"], "Unexpected argument 'postgresql://h/d"),
      (["count", "sqlite:x", "--format=postgresql://u:secret@h/d"], "is invalid for '--format <format>'"),
      (["count", "sqlite:x", "host=h password = 'a secret'"], "Unexpected argument 'host=h password = ***"),
      (["count", "sqlite:x", #"password=a\ secret"#], "Unexpected argument 'password=***"),
    ])
  func wrongUsage(arguments: [String], message: String) async throws {
    try await withTemporaryDirectory { directory in
      let output = try await CommandLineTool.run(arguments, by: "cd '\(directory.path)' && \"$@\"")
      #expect(output.status == 64)
      #expect(output.errorLines.count == 1)
      #expect(output.standardError.hasPrefix("stockroom: "))
      #expect(output.standardError.contains(message), "\(output.standardError)")
      #expect(!output.standardError.contains("secret"))
      #expect(output.standardOutput == "")
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("An argument that is not UTF-8 is refused, and not taken for another key")
  func encoding() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      let output = try await CommandLineTool.run(
        ["put", place.url, "--create", "--value", "1"], by: #""$@" "$(printf 'a\377')""#)
      #expect(output.status == 64)
      #expect(output.standardError.contains("is not UTF-8"))
      #expect(try contents(of: directory) == [])
    }
  }

  @Test(
    "A layer that encrypts needs the files of its keys", .enabled(if: PlaceLayer.canEncrypt),
    arguments: [
      (["encrypted"], [] as [String], "--layer encrypted needs --key-file NAME=FILE."),
      (["hidden"], [] as [String], "--layer hidden needs --key-file NAME=FILE."),
      (["hidden"], ["--key-file", "a=b"], "--layer hidden needs --names-key-file NAME=FILE."),
    ])
  func missingKeys(layers: [String], options: [String], message: String) async throws {
    let output = try await CommandLineTool.run(
      ["count", "sqlite:x"] + layers.flatMap { ["--layer", $0] } + options)
    #expect(output.status == 64)
    #expect(output.errorLines.count == 1)
    #expect(output.standardError.contains(message), "\(output.standardError)")
  }

  @Test("What is wrong with its layers is found before a place is made", arguments: DataPlace.engines)
  func layersBeforePlace(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      let long = String(repeating: "n", count: 600)
      _ = try await place.failure("put", "--create", "k", "--value", "1", "--layer", "namespaced=\(long)")
      let error = try await place.failure(
        "put", "--create", "k", "--value", "1", "--layer", "expiring=1d", "--layer", "inventory")
      #expect(error.contains("An inventory cannot be in front of a layer whose entries expire"))
      if PlaceLayer.canEncrypt {
        let missing = directory.appending(path: "missing").path
        _ = try await place.failure(
          "put", "--create", "k", "--value", "1", "--layer", "encrypted", "--key-file", "a=\(missing)")
      }
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("Messages have no control characters")
  func controlCharacters() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("files", in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      for output in [
        try await CommandLineTool.run("count", place.url, "\u{1B}[2J\u{9B}1m"),
        try await CommandLineTool.run("put", place.url, "k", "--file", directory.path + "/\u{1B}[2J\u{9B}1m"),
      ] {
        #expect(output.errorLines.count == 1)
        #expect(output.standardError.contains(#"\u{1B}[2J\u{9B}1m"#), "\(output.standardError)")
        #expect(
          !output.standardError.dropLast().unicodeScalars.contains {
            $0.properties.generalCategory == .control
          })
      }
    }
  }

  private static func title(of engine: String) -> String {
    ["sqlite": "SQLite database", "lmdb": "LMDB database", "leveldb": "LevelDB database"][engine]
      ?? "Files directory"
  }

  @Test("A place that is not there is an error, and is not made", arguments: DataPlace.engines)
  func absentPlace(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      let message = "There is no \(Self.title(of: engine)) at \(place.directory.path)."
      for arguments in [
        ["list"], ["get", "k"], ["count"], ["verify"], ["watch"], ["remove", "k"],
        ["put", "k", "--value", "1"],
      ] {
        let output = try await CommandLineTool.run([arguments[0], place.url] + arguments.dropFirst())
        #expect(output.status == 1)
        #expect(output.standardError == "stockroom: \(place.url): \(message)\n")
        #expect(output.standardOutput == "")
      }
      #expect(try contents(of: directory) == [])
      // Nor in an existing directory.
      try FileManager.default.createDirectory(at: place.directory, withIntermediateDirectories: false)
      #expect(try await place.failure("count").contains(message))
      #expect(try contents(of: place.directory) == [])
    }
  }

  @Test("A place of another engine is named, and stays as it is", arguments: DataPlace.engines)
  func otherEngine(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      let before = try place.files()
      for other in DataPlace.engines where other != engine {
        let error = try await DataPlace(other, in: directory).failure("put", "k", "--value", "2")
        let absence = "There is no \(Self.title(of: other)) at \(place.directory.path), but there is "
        #expect(error.contains(absence))
        #expect(error.contains(place.url))
      }
      #expect(try place.files() == before)
    }
  }

  @Test("Something else at the path is an error of one line")
  func somethingElse() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "file")
      try Data("text".utf8).write(to: file)
      for engine in DataPlace.engines {
        let output = try await CommandLineTool.run(
          "put", "\(engine):\(file.path)", "--create", "k", "--value", "1")
        #expect(output.status == 1)
        #expect(output.errorLines.count == 1)
        #expect(output.standardError.hasPrefix("stockroom: \(engine):\(file.path): "))
      }
      #expect(try Data(contentsOf: file) == Data("text".utf8))
      // A file that is not an SQLite database.
      let database = directory.appending(path: "other.sqlite3")
      try Data("text".utf8).write(to: database)
      let output = try await CommandLineTool.run("count", "sqlite:\(database.path)")
      #expect(output.status == 1)
      #expect(output.standardError.contains("is not an SQLite database"))
      #expect(try Data(contentsOf: database) == Data("text".utf8))
    }
  }

  @Test("A corrupted place is an error that names it", arguments: ["sqlite", "lmdb", "leveldb"])
  func corruption(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.withEngine { engine in
        try await engine.write((0..<100).map { (CacheKey(verbatim: "\($0)"), Data(count: 1_000)) })
      }
      let largest = try #require(try place.files().max { $0.value.count < $1.value.count })
      try largest.value.prefix(largest.value.count / 2).write(
        to: place.directory.appending(path: largest.key))
      #expect(try await place.failure("verify").hasPrefix("stockroom: \(place.url): corrupted: "))
    }
  }

  @Test("A file for --file that cannot be read is an error of one line")
  func absentFile() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      let error = try await place.failure("put", "k", "--file", "/nowhere/x")
      #expect(error.hasPrefix("stockroom: io: Reading /nowhere/x failed"))
      #expect(try await place.run("get", "k").standardOutput == "1")
    }
  }

  @Test("A LevelDB place that another program has open is locked")
  func locked() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("leveldb", in: directory)
      let error = try await place.withEngine { _ in try await place.failure("count") }
      #expect(error.hasPrefix("stockroom: \(place.url): locked: "))
    }
  }

  @Test(
    "Without permission the error names the place", .enabled(if: geteuid() != 0), arguments: DataPlace.engines
  )
  func noPermission(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      try FileManager.default.setAttributes([.posixPermissions: 0], ofItemAtPath: place.directory.path)
      let error = try await place.failure("count")
      try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: place.directory.path)
      #expect(error.hasPrefix("stockroom: \(place.url): permissionDenied: "))
    }
  }

  @Test("No file of a place is read or written in place of a closed stream", arguments: DataPlace.engines)
  func closedStreams(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      let entries = try await place.withEngine { engine in
        try await engine.write((0..<1_000).map { (CacheKey(verbatim: "\($0)"), Data("value \($0)".utf8)) })
        return try await engine.readAllEntries()
      }
      for streams in [">&-", "<&- >&-"] {
        let output = try await CommandLineTool.run(
          ["list", place.url, "--values"], by: #""$@" \#(streams)"#)
        #expect(output.status == 1)
        #expect(output.standardError.contains("Writing to standard output failed"))
        #expect(output.standardError.hasSuffix("errno \(EBADF))\n"), "\(output.standardError)")
      }
      for streams in ["2>&-", "<&- >&- 2>&-"] {
        let output = try await CommandLineTool.run(["get", place.url, "absent"], by: #""$@" \#(streams)"#)
        #expect(output.status == 1)
      }
      let put = try await CommandLineTool.run(["put", place.url, "0"], by: #""$@" <&-"#)
      #expect(put.status == 1)
      #expect(put.standardError.contains("Reading standard input failed"), "\(put.standardError)")
      let directory = try await CommandLineTool.run(["put", place.url, "0"], by: #""$@" </"#)
      #expect(directory.status == 1)
      #expect(
        directory.standardError
          == "stockroom: io: Reading standard input failed (Is a directory, errno \(EISDIR))\n")
      try await place.run("verify")
      let found = try await place.withEngine { try await $0.readAllEntries() }
      #expect(found == entries)
    }
  }

  @Test("A put that is interrupted while it waits for its value writes nothing")
  func interruptedPut() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.withEngine { try await $0.write(Data("1".utf8), key: "other") }
      let process = try LineProcess([CommandLineTool.url.path, "put", place.url, "k"])
      process.send("part of the value")
      #expect(kill(process.identifier, SIGINT) == 0)
      #expect(await process.waitUntilEnd() != .exited(status: 0))
      #expect(try await place.run("list").standardOutput == "other\n")
    }
  }
}
