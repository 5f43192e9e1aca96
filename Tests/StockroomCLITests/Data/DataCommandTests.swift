import Foundation
import StockroomCore
import Testing

@Suite("Commands about data") struct DataCommandTests {
  @Test("A value goes in and comes out byte for byte", arguments: DataPlace.engines)
  func bytes(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      let value = Data((0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
      let file = directory.appending(path: "value")
      try value.write(to: file)
      try await place.run("put", "--create", "a b/%", "--file", file.path)
      try await place.run("put", "from a pipe", by: #"cat "$0" | "$@""#.replacing("$0", with: file.path))
      try await place.run("put", "empty", "--value", "")
      #expect(try await place.run("get", "a b/%").bytes == value)
      #expect(try await place.run("get", "from a pipe").bytes == value)
      #expect(try await place.run("get", "empty").bytes == Data())
      #expect(try await place.run("list").standardOutput == "a b/%\nempty\nfrom a pipe\n")
      #expect(try await place.run("count").standardOutput == "3\n")
      #expect(
        try await place.run("verify").standardOutput == "\(place.url): no corruption found in 3 entries\n")
      #expect(try await place.withEngine { try await $0.read(key: CacheKey(verbatim: "a b/%")) } == value)
    }
  }

  @Test("A key that is absent is an error of one line, and nothing is printed", arguments: DataPlace.engines)
  func absent(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "key", "--value", "1")
      #expect(
        try await place.failure("get", "Key") == "stockroom: \(place.url): There is no entry Key.\n")
      #expect(try await place.failure("get", "a\nb", "--format", "json").hasSuffix(#"no entry a\nb."# + "\n"))
    }
  }

  @Test("With --if-absent an entry that is there stays as it is")
  func ifAbsent() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.run("put", "--create", "--if-absent", "lock", "--value", "mine")
      #expect(
        try await place.failure("put", "--if-absent", "lock", "--value", "yours")
          == "stockroom: \(place.url): The entry lock already exists and was not changed.\n")
      #expect(try await place.run("get", "lock").standardOutput == "mine")
    }
  }

  @Test("Keys are removed together, and JSON has their number", arguments: DataPlace.engines)
  func removing(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.withEngine { engine in
        try await engine.write((0..<9).map { (CacheKey(verbatim: "\($0)"), Data()) })
      }
      #expect(try await place.run("remove", "0", "1", "x").standardOutput == "")
      #expect(
        try await place.run("remove", "2", "2", "x", "--format", "json").standardOutput == #"{"removed":1}"#
          + "\n")
      #expect(try await place.run("list").lines == ["3", "4", "5", "6", "7", "8"])
      let refusal = try await place.failure("remove", "--all", status: 64)
      #expect(refusal.contains("--all removes every entry. Without a terminal to ask on, it needs --force."))
      #expect(try await place.run("count", "--format", "json").standardOutput == #"{"count":6}"# + "\n")
      #expect(
        try await place.run("remove", "--all", "--force", "--format", "json").standardOutput
          == #"{"removed":6}"# + "\n")
      #expect(try await place.run("count").standardOutput == "0\n")
    }
  }

  @Test(
    "With --all every entry is counted that is removed, while others write",
    arguments: ["sqlite", "lmdb", "files"])
  func countingWhatIsRemoved(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.withEngine { engine in
        try await engine.write(Data(), key: "first")
        let writing = Task {
          var count = 1
          while !Task.isCancelled {
            // A call that throws this has written nothing (rule C4).
            do {
              try await engine.write(Data(), key: CacheKey(verbatim: "\(count)"))
            } catch is CancellationError { break }
            count += 1
          }
          return count
        }
        defer { writing.cancel() }
        var removed = 0
        for _ in 0..<3 {
          let output = try await place.run("remove", "--all", "--force", "--format", "json")
          removed += try JSONDecoder().decode([String: Int].self, from: output.bytes)["removed"] ?? 0
        }
        writing.cancel()
        let written = try await writing.value
        #expect(try await removed + engine.keyCount() == written)
      }
    }
  }

  @Test("On a terminal --all asks, and goes on only after a yes", arguments: [("yes", 0, 0), ("y", 1, 2)])
  func confirmation(answer: String, status: Int32, left: Int) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.withEngine { try await $0.write([("a", Data()), ("b", Data())]) }
      let terminal = try Terminal()
      let process = try terminal.start(["remove", place.url, "--all"], isInput: true)
      let question = try await terminal.show(process) { $0.hasSuffix("Type yes: ") }
      #expect(question.contains("Remove all 2 entries of \(place.url)?"))
      try terminal.controller.write(contentsOf: Data("\(answer)\n".utf8))
      #expect(await process.waitUntilEnd() == .exited(status: status))
      #expect(try await place.run("count").standardOutput == "\(left)\n")
    }
  }

  @Test("Hashed keys are those of CacheKey(_:)")
  func hashed() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("lmdb", in: directory)
      let long = String(repeating: "long ", count: 200)
      try await place.run("put", "--create", "--hashed", long, "--value", "1")
      #expect(try await place.withEngine { try await $0.read(key: CacheKey(long)) } == Data("1".utf8))
      #expect(try await place.run("get", long, "--hashed").standardOutput == "1")
      #expect(try await place.run("list").standardOutput == CacheKey(long).value + "\n")
    }
  }

  @Test("Layers are as the program has them that writes the place")
  func layers() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      let layers = ["--layer", "namespaced=notes", "--layer", "checksummed", "--layer", "compressed"]
      func run(_ arguments: [String]) async throws -> CommandLineTool.Output {
        try await CommandLineTool.run(arguments + layers)
      }
      let value = String(repeating: "text ", count: 1_000)
      #expect(try await run(["put", place.url, "--create", "key", "--value", value]).status == 0)
      #expect(try await run(["get", place.url, "key"]).standardOutput == value)
      #expect(try await run(["list", place.url]).standardOutput == "key\n")
      #expect(try await run(["verify", place.url]).status == 0)
      #expect(try await place.run("list").standardOutput == "notes/key\n")
      #expect(try await place.run("get", "notes/key").bytes.count < 200)
      // Layers other than those that the place was written with.
      let other = try await CommandLineTool.run(
        "get", place.url, "--layer", "namespaced=notes", "--layer", "expiring", "key")
      #expect(other.status == 1)
      #expect(other.standardError.hasPrefix("stockroom: \(place.url): corrupted: "))
    }
  }

  @Test("A compressed value may be larger than what a program compresses unless it says otherwise")
  func largeCompressedValue() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("files", in: directory)
      let file = try zeros(257 << 20, in: directory)
      try await place.run("put", "--create", "k", "--file", file.path, "--layer", "compressed")
      #expect(
        try await place.run("verify", "--layer", "compressed").standardOutput
          == "\(place.url): no corruption found in 1 entry\n")
    }
  }

  @Test("A value of an expiring place lives for as long as is said")
  func expiring() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("files", in: directory)
      try await place.run("put", "--create", "key", "--value", "1", "--layer", "expiring=1d")
      #expect(try await place.run("get", "key", "--layer", "expiring").standardOutput == "1")
      #expect(try await place.run("get", "key").bytes.count > 1)
    }
  }

  @Test("A place that another program has open is read and written", arguments: ["sqlite", "lmdb", "files"])
  func sharing(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.withEngine { engine in
        try await engine.write(Data("1".utf8), key: "a")
        #expect(try await place.run("get", "a").standardOutput == "1")
        try await place.run("put", "b", "--value", "2")
        #expect(try await engine.read(key: "b") == Data("2".utf8))
        try await engine.write(Data("3".utf8), key: "a")
        #expect(try await place.run("list", "--values").standardOutput == "a\t3\nb\t2\n")
      }
    }
  }
}
