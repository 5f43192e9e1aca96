import ArgumentParser
import ConformanceKit
import Foundation
import StockroomCore
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomMemory
import StockroomSQLite

/// The built-in engines. A new one is one entry here.
enum EngineCatalogue {
  struct Entry: Sendable {
    /// How the engine is selected.
    let name: String
    /// What people call it.
    let title: String
    /// What it promises at full durability.
    let capabilities: EngineCapabilities
    /// Opens it.
    let open: @Sendable (URL, Durability) throws -> any StorageEngine

    init(
      _ name: String, _ title: String, _ capabilities: EngineCapabilities,
      open: @escaping @Sendable (URL, Durability) throws -> any StorageEngine
    ) {
      self.name = name
      self.title = title
      self.capabilities = capabilities
      self.open = open
    }

    /// What it promises, and so what it is checked for. The death of the machine is survived at full durability only.
    func capabilities(at durability: Durability) -> EngineCapabilities {
      durability == .full ? capabilities : capabilities.subtracting(.durableWrites)
    }

    /// The checks for it, below a directory.
    func suite(
      durability: Durability = .full, budget: ConformanceBudget = ConformanceBudget(), in directory: URL
    ) -> ConformanceSuite {
      ConformanceSuite(
        title, capabilities: capabilities(at: durability), workingDirectory: directory, budget: budget,
        worker: .ofThisCommand(self, durability)
      ) { [open] in try open($0, durability) }
    }
  }

  static let all = [
    Entry("memory", "Memory", [.atomicBatches, .snapshotReads, .orderedScans]) { _, _ in
      MemoryStorageEngine()
    },
    Entry("files", "Files", database.subtracting(.snapshotReads)) {
      try DiskStorageEngine(directory: .init(url: $0), durability: $1)
    },
    Entry("sqlite", "SQLite", database) {
      try SQLiteStorageEngine(directory: .init(url: $0), durability: $1)
    },
    Entry("lmdb", "LMDB", lmdb) { try LMDBStorageEngine(directory: .init(url: $0), durability: $1) },
    Entry("leveldb", "LevelDB", database.subtracting(.multiProcess).union(.detectsCorruption)) {
      try LevelDBStorageEngine(directory: .init(url: $0), durability: $1)
    },
  ]

  /// The engines with these names, each once, in the order of the catalogue; all of them if there are no names.
  ///
  /// - Throws: `ValidationError` if there is no engine of some name.
  static func select(_ names: [String]) throws -> [Entry] {
    if names.isEmpty { return all }
    for name in names where !all.contains(where: { $0.name == name }) {
      throw ValidationError("There is no engine called \(name). Engines: \(list).")
    }
    return all.filter { names.contains($0.name) }
  }

  /// What most databases promise.
  private static let database: EngineCapabilities = [
    .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess,
  ]

  /// On Apple's systems LMDB does not survive the death of the machine: see `LMDBStorageEngine.capabilities`.
  #if canImport(Darwin)
    private static let lmdb = database.subtracting(.durableWrites)
  #else
    private static let lmdb = database
  #endif

  /// The names of all engines.
  static var list: String { all.map(\.name).joined(separator: ", ") }
}
