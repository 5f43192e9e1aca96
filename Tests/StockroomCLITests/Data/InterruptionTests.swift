import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

@testable import StockroomCLI

@Suite("Commands about data that are interrupted") struct InterruptionTests {
  #if os(Linux)
    // Apple's systems have the temporary directory elsewhere, whatever TMPDIR is.
    @Test("An import leaves no copy of the database and no place", arguments: [SIGINT, SIGTERM])
    func importing(signal: Int32) async throws {
      try await withTemporaryDirectory { directory in
        let temporary = directory.appending(path: "temporary")
        try FileManager.default.createDirectory(at: temporary, withIntermediateDirectories: false)
        // Takes no room, and would take minutes to be copied.
        let source = directory.appending(path: "old.sqlite3")
        try Data("SQLite format 3\0".utf8).write(to: source)
        let file = try FileHandle(forWritingTo: source)
        try file.truncate(atOffset: 1 << 40)
        try file.close()
        let process = try LineProcess([
          "/usr/bin/env", "TMPDIR=\(temporary.path)", CommandLineTool.url.path, "import", source.path, "--to",
          DataPlace("lmdb", in: directory).url,
        ])
        while try contents(of: temporary).isEmpty { await Task.yield() }
        #expect(kill(process.identifier, signal) == 0)
        #expect(await process.waitUntilEnd() == .exited(status: 128 + signal))
        #expect(process.stderrTail == "")
        #expect(try contents(of: temporary) == [])
        #expect(try contents(of: directory).sorted() == ["old.sqlite3", "temporary"])
      }
    }
  #endif

  @Test("Watching that is interrupted before it has begun ends with success")
  func watching() async throws {
    try await withTemporaryDirectory { directory in
      let place = DataPlace("sqlite", in: directory)
      try await place.run("put", "--create", "k", "--value", "1")
      let task = Task {
        withUnsafeCurrentTask { $0?.cancel() }
        let command = try WatchCommand.parse([place.url])
        try await command.run()
      }
      await #expect(throws: EndedBySignal.self) { try await task.value }
    }
  }
}
