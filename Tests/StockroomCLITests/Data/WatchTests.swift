import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

@Suite("Watching a place") struct WatchTests {
  private func watch(_ place: DataPlace, _ arguments: String...) async throws -> LineProcess {
    try LineProcess([CommandLineTool.url.path, "watch", place.url] + arguments)
  }

  private func line(_ process: LineProcess) async throws -> String {
    String(decoding: try #require(await process.nextLine()), as: UTF8.self)
  }

  @Test(
    "What another process puts and removes is printed, and Ctrl-C ends it with status 0",
    arguments: ["sqlite", "lmdb", "files"])
  func changes(_ engine: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "before", "--value", "1")
      let process = try await watch(place)
      #expect(try await line(process) == "everything")
      try await place.run("put", "a\nb", "--value", "1")
      #expect(try await line(process) == #"key a\nb"#)
      try await place.run("remove", "before")
      #expect(try await line(process) == "key before")
      try await place.run("remove", "--all", "--force")
      #expect(try await line(process) == "everything")
      #expect(kill(process.identifier, SIGINT) == 0)
      #expect(await process.waitUntilEnd() == .exited(status: 0))
      #expect(process.stderrTail == "")
    }
  }

  @Test(
    "A place that is deleted, moved or replaced meanwhile ends it with an error",
    arguments: ["sqlite", "lmdb", "files"], ["deleted", "moved", "replaced"])
  func lostPlace(_ engine: String, change: String) async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace(engine, in: directory)
      try await place.run("put", "--create", "before", "--value", "1")
      let other = DataPlace(engine, in: directory, named: "other")
      if change == "replaced" { try await other.run("put", "--create", "other", "--value", "1") }
      let process = try await watch(place)
      #expect(try await line(process) == "everything")
      if change == "deleted" {
        try FileManager.default.removeItem(at: place.directory)
      } else {
        try FileManager.default.moveItem(at: place.directory, to: directory.appending(path: "aside"))
      }
      if change == "replaced" { try FileManager.default.moveItem(at: other.directory, to: place.directory) }
      #expect(await process.waitUntilEnd() == .exited(status: 1))
      #expect(process.stderrTail.hasPrefix("stockroom: \(place.url): io: "), "\(process.stderrTail)")
    }
  }

  @Test("JSON has keys exactly, and --prefix leaves the others out")
  func json() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.run("put", "--create", "before", "--value", "1")
      let process = try await watch(place, "--format", "json", "--prefix", "a")
      #expect(try await line(process) == #"{"everything":true}"#)
      try await place.run("put", "b", "--value", "1")
      try await place.run("put", "a\nb", "--value", "1")
      #expect(try await line(process) == #"{"key":"a\nb"}"#)
      #expect(kill(process.identifier, SIGTERM) == 0)
      #expect(await process.waitUntilEnd() == .exited(status: 0))
    }
  }

  @Test("Signals that are ignored from the start do not end it")
  func ignoredSignals() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.run("put", "--create", "before", "--value", "1")
      let process = try LineProcess([
        "/bin/sh", "-c", #"trap '' INT HUP; exec "$@""#, "sh", CommandLineTool.url.path, "watch", place.url,
      ])
      #expect(try await line(process) == "everything")
      for signal in [SIGINT, SIGHUP] { #expect(kill(process.identifier, signal) == 0) }
      try await place.run("put", "after", "--value", "1")
      #expect(try await line(process) == "key after")
      #expect(kill(process.identifier, SIGTERM) == 0)
      #expect(await process.waitUntilEnd() == .exited(status: 0))
    }
  }

  @Test("A closed pipe ends it without another change, and quietly")
  func closedPipe() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("files", in: directory)
      try await place.run("put", "--create", "before", "--value", "1")
      let output = try await CommandLineTool.run(
        ["watch", place.url], by: #"{ "$@"; echo $? >&2; } | head -n 1"#)
      #expect(output.standardOutput == "everything\n")
      #expect(output.standardError == "\(128 + SIGPIPE)\n")
    }
  }

  @Test("A place that no other program can change is not watched")
  func levelDB() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("leveldb", in: directory)
      try await place.run("put", "--create", "before", "--value", "1")
      #expect(
        try await place.failure("watch")
          == "stockroom: \(place.url): unsupported: No other program can change a place of this engine while it is open here.\n"
      )
    }
  }
}
