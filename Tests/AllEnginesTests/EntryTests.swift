import Foundation
import StockroomCore
import StockroomEngines
import TestFixtures
import Testing

/// Entries written with given timestamps, such as those of another engine.
@Suite struct EntryTests {
  private static let engines = EngineCatalog.onThisMachine.map(\.name)
  /// Layers in front of an engine, by name.
  private static let layers = EngineCatalog.layers.map { "memory+\($0.name)" }

  private static func open(_ name: String, in directory: borrowing TemporaryDirectory) async throws
    -> any StorageEngine
  {
    try await EngineCatalog.select([name])[0].open(directory.url, .process)
  }

  private static func entry(_ name: String, _ createdAt: Double, _ updatedAt: Double) -> StorageEntry {
    StorageEntry(
      key: CacheKey(verbatim: name), data: Data(name.utf8),
      createdAt: Date(timeIntervalSinceReferenceDate: createdAt),
      updatedAt: Date(timeIntervalSinceReferenceDate: updatedAt))
  }

  @Test(
    "Entries copied from one engine to another keep their order and their exact timestamps",
    arguments: engines, engines)
  func between(source: String, target: String) async throws {
    let directories = (try TemporaryDirectory(), try TemporaryDirectory())
    let engines = (
      try await Self.open(source, in: directories.0), try await Self.open(target, in: directories.1)
    )
    let keys = (0..<30).map { CacheKey(verbatim: "key \($0 * 7 % 30)") }
    for key in keys { try await engines.0.write(Data(key.value.utf8), key: key) }
    try await engines.0.write(Data("new".utf8), key: keys[3])
    let entries = try await engines.0.readAllEntries()
    #expect(entries.map(\.key) == keys)
    try await engines.1.writeEntries(entries)
    #expect(try await engines.1.readAllEntries() == entries)
    for engine in [engines.0, engines.1] { try await engine.close() }
  }

  @Test("Timestamps before and after 1970 and 2001 are preserved", arguments: engines + layers)
  func dates(name: String) async throws {
    let directory = try TemporaryDirectory()
    var engine = try await Self.open(name, in: directory)
    // In reverse order of time. A file system may store times from December 1901 on.
    let entries = [
      Self.entry("c", 3_000_000_000.75, 3_100_000_000.000_000_5),
      Self.entry("b", -0.000_000_001, 0.000_000_002),
      Self.entry("a", -1_100_000_000.123_456_7, -1_000_000_000.999_999_9),
    ]
    try await engine.writeEntries(entries)
    #expect(try await engine.readAllEntries() == entries)
    if engine.capabilities.contains(.persistent) {
      try await engine.close()
      engine = try await Self.open(name, in: directory)
      #expect(try await engine.readAllEntries() == entries)
      try await engine.verify()
    }
    try await engine.close()
  }

  @Test(
    "Entries with given timestamps and concurrent ordinary writes each get their own timestamps",
    arguments: engines)
  func groups(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    let start = Date() - 1
    try await withThrowingTaskGroup(of: Void.self) { group in
      for task in 0..<48 {
        group.addTask {
          let given = Self.entry("given \(task)", 1_000 + Double(task), 2_000 + Double(task))
          let name = CacheKey(verbatim: "written \(task)")
          switch task % 3 {
          case 0: try await engine.writeEntries([given])
          case 1: try await engine.writeEntries([Self.entry("also \(task)", 1, 2), given])
          default: try await engine.withTransaction { try $0.writeEntry(given) }
          }
          try await engine.write(Data(), key: name)
        }
      }
      try await group.waitForAll()
    }
    let entries = try await engine.readAllEntries()
    #expect(entries.count == 48 * 2 + 16)
    for entry in entries {
      let number = Double(entry.key.value.split(separator: " ")[1]) ?? .nan
      if entry.key.value.hasPrefix("given") {
        #expect(entry == Self.entry(entry.key.value, 1_000 + number, 2_000 + number))
      } else if entry.key.value.hasPrefix("written") {
        #expect(entry.createdAt > start)
      }
    }
    try await engine.close()
  }

  @Test(
    "A transaction writes entries with their timestamps, and a later write in it is an overwrite",
    arguments: engines + layers)
  func transactions(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await Self.open(name, in: directory)
    let (a, b) = (Self.entry("a", 10, 20), Self.entry("b", 10, 20))
    let (c, d) = (Self.entry("c", 10, 20), Self.entry("d", 10, 20))
    let start = Date() - 1
    try await engine.write(Data(), key: d.key)
    try await engine.withTransaction { transaction in
      for entry in [c, b, a, d] { try transaction.writeEntry(entry) }
      #expect(try transaction.read(key: a.key) == a.data)
      try transaction.write(Data("2".utf8), key: b.key)
      try transaction.remove(key: c.key)
      try transaction.write(Data("3".utf8), key: c.key)
    }
    let entries = try await engine.readAllEntries()
    #expect(entries.map(\.key) == [d.key, b.key, a.key, c.key])
    #expect([entries[0], entries[2]] == [d, a])
    #expect(entries[1].createdAt == b.createdAt)
    #expect([entries[1].updatedAt, entries[3].createdAt, entries[3].updatedAt].allSatisfy { $0 > start })
    try await engine.close()
  }
}
