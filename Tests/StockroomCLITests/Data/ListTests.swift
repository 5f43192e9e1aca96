import Foundation
import StockroomCore
import Testing

@Suite("Lists of entries") struct ListTests {
  @Test(
    "All entries are listed in the order of their bytes, over many pages", arguments: ["sqlite", "files"])
  func pages(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      let keys = (0..<700).map { "\($0 % 7)/\($0)" }
      // Values of very different sizes.
      try await place.withEngine { engine in
        try await engine.write(
          keys.enumerated().map { index, key in
            (CacheKey(verbatim: key), Data(count: index.isMultiple(of: 100) ? 300_000 : index % 50))
          })
      }
      let sorted = keys.sorted()
      #expect(try await place.run("list").lines.map(String.init) == sorted)
      #expect(
        try await place.run("list", "--prefix", "3/").lines.map(String.init)
          == sorted.filter { $0.hasPrefix("3/") })
      #expect(
        try await place.run("list", "--after", "5/9", "--limit", "150", "--long").lines.map {
          $0.split(separator: " ").last.map(String.init)
        } == Array(sorted.filter { $0 > "5/9" }.prefix(150)))
      #expect(try await place.run("list", "--limit", "0").lines == [])
      #expect(try await place.run("list", "--prefix", "none").lines == [])
      #expect(
        try await place.run("list", "--null", by: #""$@" | tr '\0' '\n'"#).lines.map(String.init) == sorted)
      // The command usually starts after the other end of the pipe has been closed; otherwise its status is 0.
      let output = try await CommandLineTool.run(
        ["list", place.url], by: #"{ sleep 0.01; "$@"; echo $? >&2; } | true"#)
      #expect(["\(128 + SIGPIPE)\n", "0\n"].contains(output.standardError))
    }
  }

  @Test("Text shows keys and values as one line each, and JSON has them exactly")
  func escaping() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("leveldb", in: directory)
      let entries: [(key: String, shown: String)] = [
        ("a\nb", #"a\nb"#), ("b\u{1B}[2J", #"b\u{1B}[2J"#), (#"c\n"#, #"c\\n"#), ("d\u{0}", #"d\u{0}"#),
        ("e\u{202E}x", #"e\u{202E}x"#), ("f é👨‍👩‍👧", "f é👨‍👩‍👧"), ("g\"/", "g\"/"),
      ]
      try await place.withEngine { engine in
        try await engine.write(entries.map { (CacheKey(verbatim: $0.key), Data($0.key.utf8)) })
        try await engine.write(Data([0x41, 0xFF, 0xC3, 0xA9, 0xC3]), key: "z")
      }
      #expect(try await place.run("list").lines.map(String.init) == entries.map(\.shown) + ["z"])
      #expect(
        try await place.run("list", "--values").lines.map(String.init)
          == entries.map { "\($0.shown)\t\($0.shown)" } + [#"z"# + "\t" + #"A\xFFé\xC3"#])
      let objects = try objects(try await place.run("list", "--format", "json", "--values"))
      #expect(objects.dropLast().map { $0["key"] as? String } == entries.map(\.key))
      #expect(objects.dropLast().map { $0["value"] as? String } == entries.map(\.key))
      #expect(objects.last?["base64"] as? String == "Qf/DqcM=")
      #expect(objects.last?["value"] == nil)
      // With --null, a key that contains a NUL is an error.
      let output = try await CommandLineTool.run("list", place.url, "--null", "--after", "c")
      #expect(output.status == 1)
      #expect(output.standardError.contains(#"The key d\u{0} has a NUL in it."#))
    }
  }

  @Test("Long lists have sizes and times", arguments: DataPlace.engines)
  func times(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      let (created, updated) = try await place.withEngine { engine in
        try await engine.write(Data(count: 5), key: "key")
        try await engine.write(Data(count: 7), key: "key")
        return try (
          #require(await engine.createdAt(key: "key")), #require(await engine.updatedAt(key: "key"))
        )
      }
      let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
      let line = try await place.run("list", "--long").standardOutput
      #expect(line == "         7  \(created.formatted(style))  \(updated.formatted(style))  key\n")
      let object = try #require(try objects(try await place.run("list", "--long", "--format", "json")).first)
      #expect(object["size"] as? Int == 7)
      #expect(object["createdAt"] as? String == created.formatted(style))
      #expect(object["updatedAt"] as? String == updated.formatted(style))
      let entry = try #require(try objects(try await place.run("get", "key", "--format", "json")).first)
      #expect(entry["value"] as? String == String(repeating: "\0", count: 7))
      #expect(entry["createdAt"] as? String == created.formatted(style))
    }
  }

  @Test("JSON has no control characters, and keys exactly")
  func controlCharacters() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      let key = "a\u{1B}\u{7F}\u{9B}\u{2028}\u{85}é"
      try await place.run("put", "--create", key, "--value", "1")
      let output = try await place.run("list", "--format", "json")
      #expect(output.lines.count == 1)
      #expect(
        output.standardOutput.dropLast().unicodeScalars.allSatisfy {
          !$0.properties.isWhitespace && $0.properties.generalCategory != .control
        })
      #expect(try objects(output).first?["key"] as? String == key)
    }
  }

  @Test("A pipe that does not block gets everything")
  func nonblockingPipe() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      let value = String(repeating: "v", count: 1 << 20)
      let file = directory.appending(path: "value")
      try Data(value.utf8).write(to: file)
      try await place.run("put", "--create", "k", "--file", file.path)
      let pipe = Pipe()
      let descriptor = pipe.fileHandleForWriting.fileDescriptor
      #expect(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) == 0)
      let process = Process()
      process.executableURL = CommandLineTool.url
      process.arguments = ["list", place.url, "--values"]
      process.standardOutput = pipe
      try process.run()
      try pipe.fileHandleForWriting.close()
      let output = try pipe.fileHandleForReading.readToEnd()
      process.waitUntilExit()
      #expect(process.terminationStatus == 0)
      #expect(output == Data("k\t\(value)\n".utf8))
    }
  }
}
