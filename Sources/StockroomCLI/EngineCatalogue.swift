import ArgumentParser
import Foundation
import StockroomCore
import StockroomMemory
import StockroomSQLite

/// The built-in engines. A new one is one entry here.
enum EngineCatalogue {
  struct Entry: Sendable {
    /// How the engine is selected.
    let name: String
    /// What people call it.
    let title: String
    /// What it promises, and so what it is checked for.
    let capabilities: EngineCapabilities
    /// Opens it.
    let open: @Sendable (URL, Durability) throws -> any StorageEngine
  }

  static let all = [
    Entry(
      name: "memory", title: "Memory", capabilities: [.atomicBatches, .snapshotReads, .orderedScans],
      open: { _, _ in MemoryStorageEngine() }),
    Entry(
      name: "sqlite", title: "SQLite",
      capabilities: [
        .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess,
      ],
      open: { try SQLiteStorageEngine(directory: .init(url: $0), durability: $1) }),
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

  /// The names of all engines.
  static var list: String { all.map(\.name).joined(separator: ", ") }
}
