public import Foundation
public import StockroomCore
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomMemory
import StockroomPostgreSQL
import StockroomSQLite

/// The built-in engines: what the command, the tests and the benchmarks run on. A new engine is one entry here.
///
/// It is public only because Benchmarks/Peers, a package of its own, uses it too. Nothing else may rely on it.
public enum EngineCatalog {
  /// One of the built-in engines.
  public struct Entry: Sendable {
    /// How the engine is selected on a command line.
    public let name: String
    /// What people call it.
    public let title: String
    /// What it promises at full durability.
    public let capabilities: EngineCapabilities
    /// Opens the engine behind all layers.
    let unlayered: @Sendable (URL, Durability) async throws -> any StorageEngine
    /// Where it keeps entries if it reaches a server; nil if it reaches none.
    public let database: Database?
    /// What is in front of it, the last one outermost.
    var layers: [Layer] = []

    /// An engine with these names, promises and opening.
    public init(
      _ name: String, _ title: String, _ capabilities: EngineCapabilities, database: Database? = nil,
      open: @escaping @Sendable (URL, Durability) async throws -> any StorageEngine
    ) {
      self.name = name
      self.title = title
      self.capabilities = capabilities
      self.database = database
      unlayered = open
    }

    /// Opens it in a directory, or in the namespace of a database that stands for it.
    public func open(_ directory: URL, _ durability: Durability) async throws -> any StorageEngine {
      try inFront(of: await unlayered(directory, durability))
    }

    /// What it promises, and so what it is checked for. The death of the machine is survived at full durability only.
    public func capabilities(at durability: Durability) -> EngineCapabilities {
      durability == .full ? capabilities : capabilities.subtracting(.durableWrites)
    }
  }

  /// The part of a server's database that engines have.
  public struct Database: Sendable, Equatable {
    /// How it is reached.
    public let connection: String
    /// What the names of the engines' namespaces begin with.
    public let namespacePrefix: String

    /// The namespaces with this prefix at this connection.
    public init(connection: String, namespacePrefix: String) {
      (self.connection, self.namespacePrefix) = (connection, namespacePrefix)
    }

    /// That of ``PostgreSQLServer/shared``.
    public static let shared = Database(
      connection: PostgreSQLServer.shared.connection, namespacePrefix: "stockroom_")

    /// The namespace that stands for a directory.
    public func namespace(for directory: URL) -> String {
      // A directory below a link has several paths.
      namespacePrefix + CacheKey(directory.resolvingSymlinksInPath().path).value
    }
  }

  /// A name that no built-in engine, or no layer, has.
  public struct UnknownEngine: Error, Sendable, CustomStringConvertible {
    /// The name.
    public let name: String
    var kind = "engine"
    var list = EngineCatalog.list
    /// Which name it is, and which there are.
    public var description: String {
      (name.isEmpty ? "The name of the \(kind) is empty." : "There is no \(kind) called \(name).")
        + " \(kind.capitalized)s: \(list)."
    }
  }

  /// Every built-in engine. That on PostgreSQL has a server of its own.
  public static let all = onThisMachine + [postgreSQL()]

  /// The engine on PostgreSQL. ``PostgreSQLServer/shared`` is started when it is needed.
  public static func postgreSQL(_ place: Database = .shared) -> Entry {
    Entry("postgresql", "PostgreSQL", database.union(.networked), database: place) { directory, durability in
      if place == .shared { try await PostgreSQLServer.shared.start() }
      return try await PostgreSQLStorageEngine(
        place.connection, namespace: place.namespace(for: directory), durability: durability,
        // A machine that is busy with checks is no silent server.
        timeLimit: .seconds(300))
    }
  }

  /// The engines that keep entries in memory or in files.
  public static let onThisMachine = [
    Entry(
      "memory", "Memory",
      [.atomicBatches, .snapshotReads, .orderedScans, .transactions, .changeFeed, .preservesTimestamps]
    ) { _, _ in MemoryStorageEngine() },
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

  /// The engines with these names, each once, in the order of the catalog; all of them if there are no names. After a plus sign
  /// comes the name of a layer in front of the engine.
  ///
  /// - Throws: ``UnknownEngine`` for the first name that no engine or layer has.
  public static func select(_ names: [String]) throws -> [Entry] {
    if names.isEmpty { return all }
    var seen: Set<String> = []
    let chosen = try names.filter { seen.insert($0).inserted }.map { name in
      let parts = name.split(separator: "+", omittingEmptySubsequences: false).map(String.init)
      guard all.contains(where: { $0.name == parts[0] }) else { throw UnknownEngine(name: parts[0]) }
      return (engine: parts[0], layers: try selectLayers(Array(parts.dropFirst())))
    }
    return all.flatMap { engine in
      chosen.filter { $0.engine == engine.name }.map { engine.layered(by: $0.layers) }
    }
  }

  /// The names of all engines.
  public static var list: String { all.map(\.name).joined(separator: ", ") }

  /// What most databases promise.
  private static let database: EngineCapabilities = [
    .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess, .transactions,
    .changeFeed, .preservesTimestamps,
  ]

  /// On Apple's systems LMDB does not survive the death of the machine: see `LMDBStorageEngine.capabilities`.
  #if canImport(Darwin)
    private static let lmdb = database.subtracting(.durableWrites)
  #else
    private static let lmdb = database
  #endif
}
