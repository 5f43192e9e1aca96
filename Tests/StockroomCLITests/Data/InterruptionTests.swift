import Foundation
import StockroomCSQLite
import StockroomCore
import StockroomKitSupport
import Testing

@testable import StockroomCLI

@Suite("Commands about data that are interrupted") struct InterruptionTests {
  #if os(Linux)
    // On Apple's systems TMPDIR does not change the temporary directory.
    @Test("An import leaves no copy of the database and no place", arguments: [SIGINT, SIGTERM])
    func importing(signal: Int32) async throws {
      try await withTemporaryDirectory { directory in
        let temporary = directory.appending(path: "temporary")
        try FileManager.default.createDirectory(at: temporary, withIntermediateDirectories: false)
        // A sparse file, which would take minutes to copy.
        let source = directory.appending(path: "old.sqlite3")
        try Data("SQLite format 3\0".utf8).write(to: source)
        let file = try FileHandle(forWritingTo: source)
        try file.truncate(atOffset: 1 << 40)
        try file.close()
        // At most 512 MiB are written, so that a late signal does not fill the disk.
        let process = try LineProcess([
          "/bin/sh", "-c", "ulimit -f 1048576; exec \"$@\"", "sh", "/usr/bin/env", "TMPDIR=\(temporary.path)",
          CommandLineTool.url.path, "import", source.path, "--to", DataPlace("lmdb", in: directory).url,
        ])
        while try contents(of: temporary).isEmpty { try await Task.sleep(for: .milliseconds(1)) }
        #expect(kill(process.identifier, signal) == 0)
        #expect(await process.waitUntilEnd() == .exited(status: 128 + signal))
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

  @Test(
    "An interrupted command that leaves entries behind says how they are completed, with the status of the signal"
  )
  func incomplete() async throws {
    try await withTemporaryDirectory { directory in
      let (old, place) = (directory.appending(path: "old.sqlite3"), DataPlace("sqlite", in: directory))
      let count = 4_000
      var database: OpaquePointer?
      try #require(sqlite3_open(old.path, &database) == SQLITE_OK)
      let sql = """
        CREATE TABLE data (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL, createdAt TEXT, updatedAt TEXT);
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < \(count))
        INSERT INTO data SELECT 'key ' || n, x'7b7d', '2023-01-01 10:00:00', '2023-01-02 10:00:00' FROM number;
        """
      #expect(sqlite3_exec(database, sql, nil, nil, nil) == SQLITE_OK)
      sqlite3_close(database)
      try await place.run("put", "--create", "k", "--value", "1")
      let process = try LineProcess([
        CommandLineTool.url.path, "import", old.path, "--merge", "--to", place.url,
      ])
      // After the first of four batches. Each is synced, and all entries are read again after the last.
      try await place.withEngine { engine in
        while try await engine.keyCount() == 1 { await Task.yield() }
        kill(process.identifier, SIGINT)
      }
      let ending = await process.waitUntilEnd()
      // The import may have ended before the signal.
      guard ending != .exited(status: 0) else { return }
      #expect(ending == .exited(status: 128 + SIGINT))
      let message = process.stderrTail
      if try await place.run("count").standardOutput != "\(count + 1)\n" || !message.isEmpty {
        #expect(message.contains("importing again with --merge completes it"), "\(message)")
      }
      let again = try await CommandLineTool.run(
        "import", old.path, "--merge", "--to", place.url)
      #expect(again.status == 0, "\(again.standardError)")
      #expect(try await place.run("count").standardOutput == "\(count + 1)\n")
    }
  }
}
