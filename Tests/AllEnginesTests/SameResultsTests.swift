import Foundation
import StockroomCore
import TestFixtures
import StockroomEngines
import Testing

/// The same calls return the same results on every engine.
@Suite struct SameResultsTests {
  static let keys =
    [
      "", String(repeating: "k", count: 512), "../../x", "/etc/passwd", ".", "..", "a\0b", "\0", "%2F", "CON",
      "A", "a",
      "\u{e9}", "e\u{301}", String(repeating: "😀", count: 127) + "abc", " a", "a ", "a/b", "a//b", "~", "\n",
      "\u{7f}",
      "\u{feff}x", "*?<>|:\"\\", ".stockroom", "data.mdb", "entries", "-", "%", "％", "ß", "ﬁ", "İ",
      "\u{10ffff}",
    ].map(CacheKey.init(verbatim:))

  /// The results of an engine, one line per call.
  static func transcript(of engine: any StorageEngine) async -> [String] {
    var lines: [String] = []
    func ask<Answer>(_ question: String, _ body: () async throws -> Answer) async {
      do {
        lines.append("\(question): \(try await body())")
      } catch let error as StorageError {
        lines.append("\(question): throws \(error.code)")
      } catch {
        lines.append("\(question): throws \(error)")
      }
    }
    func text(_ data: Data?) -> String { data.map { String(decoding: $0, as: UTF8.self) } ?? "nil" }
    func texts(_ entries: [(key: CacheKey, data: Data)]) -> [String] {
      entries.map { "\($0.key)=\(text($0.data))" }
    }

    for (index, key) in keys.enumerated() {
      await ask("write \(key)") { try await engine.write(Data("value \(index)".utf8), key: key) }
    }
    for key in keys {
      await ask("read \(key)") { text(try await engine.read(key: key)) }
      await ask("exists \(key)") { try await engine.keyExists(key) }
      await ask("createdAt \(key)") { try await engine.createdAt(key: key) != nil }
    }
    let valid = keys.filter { (1...511).contains($0.value.utf8.count) }
    await ask("keys") { try await engine.allKeys().sorted() }
    await ask("count") { try await engine.keyCount() }
    await ask("scan") { texts(try await engine.scan(.all, limit: nil)) }
    await ask("entries") { try await engine.readAllEntries().map(\.key) }
    await ask("keys one by one") { try await engine.keysExist(valid.reversed() + valid) }
    await ask("many") {
      texts(try await engine.readDataAndKeys(keys: valid + [CacheKey("absent"), valid[0]]))
    }
    await ask("an invalid one among many") { try await engine.read(keys: keys) }
    await ask("an invalid one in a batch") {
      try await engine.apply([.removeAll, .write(Data(), key: keys[0])])
    }
    for key in keys where key.value.utf8.count % 2 == 1 {
      await ask("remove \(key)") { try await engine.remove(key: key) }
    }
    await ask("what is left") { texts(try await engine.scan(.all, limit: nil)) }
    await ask("batch") {
      try await engine.apply([
        .write(Data("1".utf8), key: valid[3]), .removeAll, .write(Data("2".utf8), key: valid[5]),
        .write(Data("3".utf8), key: valid[4]), .remove(key: valid[5]), .write(Data("4".utf8), key: valid[5]),
      ])
    }
    await ask("after the batch") { try await engine.readAllEntries().map { "\($0.key)=\(text($0.data))" } }
    await ask("close") { try await engine.close() }
    await ask("after closing") { try await engine.keyCount() }
    return lines
  }

  @Test("All engines return the same results for unusual keys")
  func transcripts() async throws {
    let expected = await Self.transcript(
      of: try await EngineCatalog.onThisMachine[0].open(URL(filePath: "/nowhere"), .process))
    #expect(expected.count > 100)
    for engine in EngineCatalog.onThisMachine.dropFirst() {
      let directory = try TemporaryDirectory()
      let inside = directory.appending("a/b/engine")
      let answers = try await Self.transcript(of: engine.open(inside, .process))
      for (answer, expected) in zip(answers, expected) { #expect(answer == expected, "\(engine.title)") }
      #expect(answers.count == expected.count, "\(engine.title)")
      // Nothing was written outside the engine's directory (rule K4).
      #expect(try FileManager.default.contentsOfDirectory(atPath: directory.url.path) == ["a"])
      #expect(try FileManager.default.contentsOfDirectory(atPath: directory.appending("a").path) == ["b"])
      #expect(
        try FileManager.default.contentsOfDirectory(atPath: directory.appending("a/b").path) == ["engine"])
    }
  }
}
