public import Foundation
public import StockroomCore
import StockroomFileSystem
import StockroomLMDB
import StockroomLevelDB
import StockroomMemory
import StockroomPostgreSQL
import StockroomSQLite

/// The built-in engines, for the command, the tests and the benchmarks. A new engine needs one entry here.
///
/// Public only because Benchmarks/Peers, a separate package, uses it. Not meant for other users.
public enum EngineCatalog {
  /// One of the built-in engines.
  public struct Entry: Sendable {
    /// The name of the engine on a command line.
    public let name: String
    /// The name of the engine in prose.
    public let title: String
    /// The capabilities at full durability.
    public let capabilities: EngineCapabilities
    /// Opens the engine without its layers.
    let openBase: @Sendable (URL, Durability) async throws -> any StorageEngine
    /// The database that holds the entries; nil for an engine without a server.
    public let database: Database?
    /// The layers in front of the engine, the last one outermost.
    var layers: [Layer] = []

    /// Creates an entry.
    public init(
      _ name: String, _ title: String, _ capabilities: EngineCapabilities, database: Database? = nil,
      open: @escaping @Sendable (URL, Durability) async throws -> any StorageEngine
    ) {
      self.name = name
      self.title = title
      self.capabilities = capabilities
      self.database = database
      openBase = open
    }

    /// Opens the engine in a directory, or in the database namespace that is derived from the directory.
    public func open(_ directory: URL, _ durability: Durability) async throws -> any StorageEngine {
      try withLayers(on: await openBase(directory, durability))
    }

    /// The capabilities at a durability. Only at full durability do writes survive a machine crash.
    public func capabilities(at durability: Durability) -> EngineCapabilities {
      durability == .full ? capabilities : capabilities.subtracting(.durableWrites)
    }
  }

  /// The part of a server's database that engines use.
  public struct Database: Sendable, Equatable, CustomStringConvertible, CustomReflectable {
    /// The connection string, which may contain a password. No description shows it.
    public let connection: String
    /// The prefix of the engines' namespaces.
    public let namespacePrefix: String

    /// The namespaces with this prefix in the database of this connection.
    public init(connection: String, namespacePrefix: String) {
      (self.connection, self.namespacePrefix) = (connection, namespacePrefix)
    }

    /// The prefix of the namespaces, without the connection string.
    public var description: String { "the namespaces that begin with \(namespacePrefix)" }

    /// The prefix of the namespaces, without the connection string.
    public var customMirror: Mirror { Mirror(self, children: ["namespacePrefix": namespacePrefix]) }

    /// The database of ``PostgreSQLServer/shared``.
    public static let shared = Database(
      connection: PostgreSQLServer.shared.connection, namespacePrefix: "stockroom_")

    /// The namespace that is derived from a directory.
    public func namespace(for directory: URL) -> String {
      // A directory below a symbolic link has several paths.
      namespacePrefix + CacheKey(directory.resolvingSymlinksInPath().path).value
    }
  }

  /// A name that no built-in engine or layer has.
  public struct UnknownEngine: Error, Sendable, CustomStringConvertible {
    /// The unknown name.
    public let name: String
    var kind = "engine"
    var list = EngineCatalog.list
    /// The unknown name and the names that exist.
    public var description: String {
      (name.isEmpty ? "The name of the \(kind) is empty." : "There is no \(kind) called \(name).")
        + " \(kind.capitalized)s: \(list)."
    }
  }

  /// Every built-in engine. The PostgreSQL engine uses ``PostgreSQLServer/shared``.
  public static let all = onThisMachine + [postgreSQL()]

  /// The PostgreSQL engine. Starts ``PostgreSQLServer/shared`` when it is first needed.
  public static func postgreSQL(_ place: Database = .shared) -> Entry {
    Entry("postgresql", "PostgreSQL", database.union(.networked), database: place) { directory, durability in
      if place == .shared { try await PostgreSQLServer.shared.start() }
      return try await PostgreSQLStorageEngine(
        place.connection, namespace: place.namespace(for: directory), durability: durability,
        // Long, because checks can keep the machine so busy that the server responds late.
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

  /// The engines with these names, each once, in the order of the catalog; all of them if there are no names.
  /// A name may end with a plus sign and the name of a layer to put in front of the engine.
  ///
  /// - Throws: ``UnknownEngine`` for the first name without an engine or layer.
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

  /// The capabilities that most databases share.
  private static let database: EngineCapabilities = [
    .persistent, .atomicBatches, .snapshotReads, .orderedScans, .durableWrites, .multiProcess, .transactions,
    .changeFeed, .preservesTimestamps,
  ]

  /// On Apple's systems LMDB does not survive a machine crash: see `LMDBStorageEngine.capabilities`.
  #if canImport(Darwin)
    private static let lmdb = database.subtracting(.durableWrites)
  #else
    private static let lmdb = database
  #endif
}
