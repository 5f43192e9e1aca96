import Foundation
import StockroomCore
import Testing

@testable import StockroomCLI

/// Rule C3, with real processes.
@Suite struct TwoProcessesTests {
  static func names(where isIncluded: (EngineCapabilities) -> Bool) -> [String] {
    EngineCatalogue.all
      .filter { $0.capabilities.contains(.persistent) && isIncluded($0.capabilities) }.map(\.name)
  }

  static func key(_ writer: String, _ number: Int) -> CacheKey { CacheKey(verbatim: "\(writer)-\(number)") }

  /// Writes a hundred batches of two entries, and finds its own.
  static func write(as writer: String, to engine: any StorageEngine) async throws {
    for number in stride(from: 0, to: 200, by: 2) {
      let keys = [key(writer, number), key(writer, number + 1)]
      try await engine.write(keys.map { (key: $0, data: Data($0.value.utf8)) })
      let found = try await engine.read(keys: keys)
      try #require(found == keys.map { Data($0.value.utf8) })
    }
  }

  @Test(
    "Two processes write to one place at the same time, and each finds what the other wrote",
    arguments: names { $0.contains(.multiProcess) })
  func shared(name: String) async throws {
    let directory = try TemporaryDirectory()
    let path = directory.appending("engine").path
    let engine = try EngineCatalogue.select([name])[0].open(URL(filePath: path), .process)
    try await engine.write(Data([1]), key: CacheKey(verbatim: "before"))

    async let other: Void = {
      await #expect(processExitsWith: .success) { [name = name as String, path = path as String] in
        let engine = try EngineCatalogue.select([name])[0].open(URL(filePath: path), .process)
        try #require(try await engine.read(key: CacheKey(verbatim: "before")) == Data([1]))
        try await TwoProcessesTests.write(as: "child", to: engine)
        try await engine.close()
      }
    }()
    try await Self.write(as: "parent", to: engine)
    await other

    let expected = ["child", "parent"].flatMap { writer in (0..<200).map { Self.key(writer, $0) } }
    #expect(try await engine.keysExist(expected) == expected)
    #expect(try await engine.keyCount() == expected.count + 1)
    for writer in ["child", "parent"] {
      let inOrder = try await engine.readAllEntries().map(\.key.value).filter { $0.hasPrefix(writer) }
      #expect(inOrder == (0..<200).map { "\(writer)-\($0)" })
    }
    try await engine.close()
  }

  @Test(
    "A place that is open in one process is locked for another, until that one closes it",
    arguments: names { !$0.contains(.multiProcess) })
  func locked(name: String) async throws {
    let directory = try TemporaryDirectory()
    let path = directory.appending("engine").path
    let engine = try EngineCatalogue.select([name])[0].open(URL(filePath: path), .process)
    try await engine.write(Data([1]), key: CacheKey(verbatim: "key"))
    await #expect(processExitsWith: .success) { [name = name as String, path = path as String] in
      do {
        _ = try EngineCatalogue.select([name])[0].open(URL(filePath: path), .process)
        Issue.record("The place was not locked.")
      } catch let error as StorageError {
        try #require(error.code == .locked)
      }
    }
    try await engine.close()
    await #expect(processExitsWith: .success) { [name = name as String, path = path as String] in
      let engine = try EngineCatalogue.select([name])[0].open(URL(filePath: path), .process)
      try #require(try await engine.read(key: CacheKey(verbatim: "key")) == Data([1]))
    }
  }
}
