import ArgumentParser
import BenchmarkKit
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL

extension Durability: ExpressibleByArgument {}

/// The engines of a command, where they keep their entries, and how.
struct EngineOptions: ParsableArguments {
  @Option(
    name: .customLong("engine"),
    help: ArgumentHelp(
      "An engine; repeat it for more. (values: \(EngineCatalog.list); default: all)",
      valueName: "name"))
  var names: [String] = []

  @Option(
    name: .customLong("layer"),
    help: ArgumentHelp(
      "A layer in front of each engine; repeat it for several, the last one outermost. (values: \(EngineCatalog.listOfLayers))",
      valueName: "name"))
  var layers: [String] = []

  @Option(
    help: ArgumentHelp(
      "An existing or new directory in which the engines' directories are created and removed. It is kept. "
        + "(default: the system's temporary directory)",
      valueName: "path"))
  var directory: String?

  @Option(
    help:
      "When a write is acknowledged: once it is on the disk (full), or with the operating system (process).")
  var durability = Durability.full

  @Option(
    help: ArgumentHelp(
      "The database for the PostgreSQL engine, as libpq accepts it. Keep the password in PGPASSWORD or ~/.pgpass. "
        + "(default: a server of its own, if one is installed)", valueName: "connection"))
  var postgresql: String?

  @Option(help: .hidden) var namespacePrefix: String?

  /// Those that are named, or all.
  var engines: [EngineCatalog.Entry] {
    get throws {
      try EngineCatalog.named(names, layers: layers, database: database ?? .shared)
    }
  }

  /// Those that can be used here: without names, PostgreSQL only where there is a server.
  var usableEngines: [EngineCatalog.Entry] {
    get throws { try engines.filter { !leavesServerOut || $0.database == nil } }
  }

  private var leavesServerOut: Bool {
    names.isEmpty && postgresql == nil && PostgreSQLServer.installedPrograms() == nil
  }

  /// The namespaces of this process in the database of --postgresql. Those of its child processes have the same prefix, so that
  /// they are removed with it.
  var database: EngineCatalog.Database? {
    postgresql.map { .init(connection: $0, namespacePrefix: namespacePrefix ?? Self.ownNamespacePrefix) }
  }

  /// The server of this process, if an engine needs it.
  var ownServer: PostgreSQLServer? {
    get throws { try usableEngines.contains { $0.database == .shared } ? .shared : nil }
  }

  private static let ownNamespacePrefix = "stockroom_\(UInt32.random(in: .min ... .max))_"

  /// Starts the server that engines need, and says which engine is left out.
  private func prepare(_ scratch: URL) async throws {
    if try ownServer != nil {
      // A server that is being started cannot be stopped.
      try await CleaningUp.awaited { try await startServer(below: scratch) }
    }
    // Fails early if the server cannot be reached; engines would wait for it.
    try await removeNamespaces()
    if leavesServerOut {
      writeToStandardError(
        "PostgreSQL is left out: no server is installed here. --postgresql names one elsewhere.\n")
    }
  }

  /// Starts the server of this process, with its data on the disk that was asked for.
  private func startServer(below scratch: URL) async throws {
    let server = PostgreSQLServer.shared
    // The processes of checks have servers too, and this directory as their parent.
    try PostgreSQLServer.letUserEnter(scratch)
    if directory != nil, try await !server.keepData(below: scratch) {
      writeToStandardError(
        "PostgreSQL keeps its data in \(server.data.path): its user may not enter \(parent.path).\n")
    }
    try await server.start()
  }

  /// Stops the server of this process if its data are below the scratch directory, which is about to be removed. Otherwise it ends
  /// with the process.
  private func discardServer(below scratch: URL) async throws {
    guard PostgreSQLServer.shared.data.isBelow(scratch) else { return }
    try await CleaningUp.awaited { try await PostgreSQLServer.shared.discard() }
  }

  /// Whether the engine keeps entries elsewhere than in the directory of the engines.
  func isElsewhere(_ engine: EngineCatalog.Entry) -> Bool {
    guard let database = engine.database else { return false }
    return database != .shared || !PostgreSQLServer.shared.data.isBelow(parent)
  }

  /// The checks for engines, below a directory.
  func suites(
    of engines: [EngineCatalog.Entry], budget: ConformanceBudget = ConformanceBudget(), in directory: URL
  ) -> [ConformanceSuite] {
    engines.map { $0.suite(durability: durability, budget: budget, in: directory) }
  }

  func validate() throws {
    _ = try engines
    if let directory, directory.isEmpty { throw ValidationError("The path for --directory is empty.") }
    if let postgresql, postgresql.isEmpty {
      throw ValidationError("The connection for --postgresql is empty.")
    }
    if postgresql != nil, try !engines.contains(where: { $0.database != nil }) {
      throw ValidationError("--postgresql is for the engine postgresql, which --engine leaves out.")
    }
  }

  /// Whether engines keep entries in somebody's database.
  private var usesDatabase: Bool {
    get throws { try usableEngines.contains { $0.database != nil && $0.database == database } }
  }

  /// The parent of the engines' directories.
  private var parent: URL {
    directory.map { URL(commandLinePath: $0, directoryHint: .isDirectory) }
      ?? FileManager.default.temporaryDirectory
  }

  /// Removes the namespaces from the database of --postgresql, if engines have used it. The command's own server is removed as a
  /// whole.
  private func removeNamespaces() async throws {
    guard let database, try usesDatabase else { return }
    try await PostgreSQLStorageEngine.removeNamespaces(
      beginningWith: database.namespacePrefix, at: database.connection)
  }

  /// Calls `body` with a new directory, which is removed afterwards, also if `body` throws.
  func withScratchDirectory<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
    // Unlike temporary files, namespaces in the database of --postgresql would stay. The command's own server may have its data in
    // this directory, so it must be stopped first.
    let mustEnd = try usesDatabase || ownServer != nil && directory != nil
    return try await mustEnd
      ? CleaningUp.awaited { try await withRemovedDirectory(body) } : withRemovedDirectory(body)
  }

  private func withRemovedDirectory<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
    let scratch = try ScratchDirectory(in: parent, named: "stockroom")
    ScratchDirectories.add(scratch)
    let result: Result
    var isPrepared = false
    do {
      try await prepare(scratch.url)
      isPrepared = true
      result = try await body(scratch.url)
    } catch {
      // The first error is the cause.
      do {
        if isPrepared { try await removeNamespaces() }
      } catch let remainder {
        warn(ofNamespaces: remainder)
      }
      try? await discardServer(below: scratch.url)
      try? ScratchDirectories.remove(scratch)
      throw error
    }
    // The results are returned even if the server cannot be reached any more, or an engine that hangs still writes to the directory.
    do {
      try await removeNamespaces()
    } catch {
      warn(ofNamespaces: error)
    }
    do {
      try await discardServer(below: scratch.url)
      try ScratchDirectories.remove(scratch)
    } catch {
      writeToStandardError("\(error)\n")
    }
    return result
  }

  private func warn(ofNamespaces error: any Error) {
    guard let database else { return }
    writeToStandardError(
      "Schemas whose names begin with \(database.namespacePrefix) may be left in the database: \(error)\n")
  }
}

extension URL {
  /// Whether this is the path of something in the directory, by the names alone.
  fileprivate func isBelow(_ directory: URL) -> Bool {
    let parent = directory.absoluteURL.path
    return absoluteURL.path.hasPrefix(parent.hasSuffix("/") ? parent : parent + "/")
  }
}
