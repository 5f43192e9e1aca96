#if os(Linux)
  import Foundation
  import StockroomCore
  import TestFixtures
  import StockroomFileSystem
  import Testing

  @Suite("Changes that other programs make to the files of entries")
  struct ForeignChangeTests {
    let place: TemporaryDirectory

    init() throws { place = try TemporaryDirectory() }

    @Test(
      "The feed reports a foreign write to a file right after a commit of the same key",
      .timeLimit(.minutes(60)))
    func writtenAfterCommit() async throws {
      let engine = try place.open(.process)
      let origin = ChangeOrigin()
      let stream = try await ChangeOrigin.$current.withValue(origin) { try await engine.changes() }
      var changes = stream.makeAsyncIterator()
      for _ in 0..<100 {
        try await ChangeOrigin.$current.withValue(origin) { try await engine.write(data("1"), key: "a") }
        // Immediately, so that one check sometimes finds both.
        let file = try FileHandle(forWritingTo: place.file("a.entry"))
        try file.write(contentsOf: data("2"))
        try file.close()
        let change = await changes.next()
        #expect(change == .keys(["a"]) || change == .everything)
        #expect(try await engine.read(key: "a") == data("2"))
      }
      try await engine.close()
    }

    @Test(
      "Commits of long keys are reported after another program has removed the log",
      .timeLimit(.minutes(60)))
    func removedLog() async throws {
      let (reader, writer) = (try place.open(.process), try place.open(.process))
      let key = CacheKey(verbatim: String(repeating: "k", count: 500))
      try await writer.write(data("0"), key: key)
      var changes = try await reader.changes().makeAsyncIterator()
      try FileManager.default.removeItem(at: place.file(".stockroom/changes"))
      for step in 1...5 {
        try await writer.write(data("\(step)"), key: key)
        #expect(await changes.next() == .everything)
        #expect(try await reader.read(key: key) == data("\(step)"))
      }
      try await writer.close()
      try await reader.close()
    }

    @Test(
      "The feed reports new files of other programs while another file is in place of its log",
      .timeLimit(.minutes(60)))
    func withoutLog() async throws {
      let engine = try place.open(.process)
      var changes = try await engine.changes().makeAsyncIterator()
      try data("something else").write(to: place.file(".stockroom/changes"), options: .atomic)
      #expect(await changes.next() == .everything)
      try data("1").write(to: place.file("a.entry"))
      #expect(await changes.next() == .everything)
      #expect(try await engine.read(key: "a") == data("1"))
      try await engine.close()
    }
  }
#endif
