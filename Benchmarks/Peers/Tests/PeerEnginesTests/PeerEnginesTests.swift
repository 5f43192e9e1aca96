import BenchmarkKit
import Foundation
import PeerEngines
import StockroomCore
import Testing

@Suite("Peers") struct PeerEnginesTests {
  @Test("A peer returns correct results for every call", arguments: Peer.all.map(\.name))
  func answersRightly(_ name: String) async throws {
    let peer = try #require(Peer.all.first { $0.name == name })
    let configuration = BenchmarkConfiguration(
      entries: 200, valueSize: 100, repetitions: 1, workloads: try #require(Workload.named("calls")))
    let subject = BenchmarkSubject(name) { try await peer.open($0, .full) }
    let report = try await BenchmarkRunner(configuration: configuration).run([subject])
    let missing = Set(report.workloads.map(\.name)).subtracting(report.results.map(\.workload))
    // `open` requires a persistent engine, which Dictionary is not.
    #expect(missing == (name == "Dictionary" ? ["open"] : []))
  }

  @Test("A peer keeps empty values, long ones, and any key", arguments: Peer.all.map(\.name))
  func keepsAnything(_ name: String) async throws {
    try await withPeer(name) { engine in
      let values = [
        "empty": Data(), "long": Data(repeating: 7, count: 100_000), ".dot": Data([1]), "a/b%2F": Data([2]),
        "4096": Data(repeating: 8, count: 4096),
      ]
      for (key, value) in values { try await engine.write(value, key: CacheKey(verbatim: key)) }
      for (key, value) in values {
        #expect(try await engine.read(key: CacheKey(verbatim: key)) == value)
      }
      #expect(try await Set(engine.allKeys().map(\.value)) == Set(values.keys))
      #expect(try await engine.readAllData().count == values.count)
    }
  }

  @Test("A peer scans the entries of the range", arguments: Peer.all.map(\.name))
  func scans(_ name: String) async throws {
    try await withPeer(name) { engine in
      let keys = ["a", "b/1", "b/2", "b/3", "c"].map { CacheKey(verbatim: $0) }
      try await engine.write(keys.map { ($0, Data($0.value.utf8)) })
      func scan(_ range: KeyRange, limit: Int? = nil) async throws -> [String] {
        try await engine.scan(range, limit: limit).map(\.key.value)
      }
      #expect(try await scan(.all) == keys.map(\.value))
      #expect(try await scan(.prefix("b/")) == ["b/1", "b/2", "b/3"])
      #expect(try await scan(.all, limit: 2) == ["a", "b/1"])
      #expect(try await scan(.all, limit: 0) == [])
      #expect(try await scan(KeyRange(after: keys[1], upTo: keys[3])) == ["b/2", "b/3"])
    }
  }

  @Test(
    "A transaction of a peer reads its own writes, and one that throws changes nothing",
    arguments: ["raw SQLite", "raw LMDB", "raw LevelDB"])
  func transactions(_ name: String) async throws {
    struct Refusal: Error {}
    try await withPeer(name) { engine in
      #expect(engine.capabilities.contains(.transactions))
      let (one, other) = (CacheKey("one"), CacheKey("other"))
      try await engine.write(Data([1]), key: one)
      let read = try await engine.withTransaction { transaction in
        try transaction.write(Data([2]), key: other)
        let read = try transaction.read(keys: [one, other])
        try transaction.remove(key: one)
        #expect(try !transaction.keyExists(one))
        return read
      }
      #expect(read == [Data([1]), Data([2])])
      await #expect(throws: Refusal.self) {
        try await engine.withTransaction { transaction in
          try transaction.write(Data([3]), key: other)
          throw Refusal()
        }
      }
      #expect(try await engine.read(key: one) == nil)
      #expect(try await engine.read(key: other) == Data([2]))
    }
  }

  @Test(
    "A peer on SQLite overwrites no pages that a removal frees",
    arguments: ["raw SQLite", "GRDB", "GRDB awaited"])
  func leavesFreePages(_ name: String) async throws {
    try await withPeer(name) { engine, directory in
      let key = CacheKey("key")
      try await engine.write(Data(repeating: 0x5A, count: 100_000), key: key)
      try await engine.remove(key: key)
      try await engine.close()
      // Closing the last connection moves all pages from the log into the database.
      let raw = try #require(Peer.all.first { $0.name == "raw SQLite" })
      try await raw.open(directory, .process).close()
      let file = try Data(contentsOf: directory.appending(path: "peer.sqlite3"))
      #expect(file.count { $0 == 0x5A } > 50_000)
    }
  }

  @Test("A peer throws .unsupported for timestamps", arguments: Peer.all.map(\.name))
  func hasNoTimestamps(_ name: String) async throws {
    try await withPeer(name) { engine in
      let key = CacheKey("key")
      try await engine.write(Data([1]), key: key)
      #expect(try await engine.keyExists(key))
      await #expect { try await engine.createdAt(key: key) } throws: { Self.isUnsupported($0) }
      await #expect { try await engine.updatedAt(key: key) } throws: { Self.isUnsupported($0) }
      await #expect { try await engine.readAllEntries() } throws: { Self.isUnsupported($0) }
    }
  }

  private static func isUnsupported(_ error: any Error) -> Bool {
    (error as? StorageError)?.code == .unsupported
  }

  private func withPeer(_ name: String, _ body: (any StorageEngine) async throws -> Void) async throws {
    try await withPeer(name) { engine, _ in try await body(engine) }
  }

  private func withPeer(
    _ name: String, _ body: (any StorageEngine, URL) async throws -> Void
  ) async throws {
    let peer = try #require(Peer.all.first { $0.name == name })
    let directory = FileManager.default.temporaryDirectory.appending(path: "peer-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { #expect(throws: Never.self) { try FileManager.default.removeItem(at: directory) } }
    let engine = try await peer.open(directory, .process)
    try await body(engine, directory)
    try await engine.close()
  }
}
