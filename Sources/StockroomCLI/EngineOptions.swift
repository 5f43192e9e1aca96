import ArgumentParser
import BenchmarkKit
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL

extension Durability: ExpressibleByArgument {}

/// The options for the engines of a command: names and layers, where entries are stored, and the durability.
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

  /// The named engines; all if none are named.
  var engines: [EngineCatalog.Entry] {
    get throws {
      try EngineCatalog.named(names, layers: layers, database: database ?? .shared)
    }
  }

  /// The ``engines`` that can be used on this machine. If none are named, this includes PostgreSQL only if a server is
  /// installed or `--postgresql` is given.
  var usableEngines: [EngineCatalog.Entry] {
    get throws { try engines.filter { !leavesServerOut || $0.database == nil } }
  }

  private var leavesServerOut: Bool {
    names.isEmpty && postgresql == nil && PostgreSQLServer.installedPrograms() == nil
  }

  /// The database of `--postgresql`, with the prefix of the namespaces of this process. The namespaces of its child
  /// processes begin with the same prefix, so that they are removed together.
  var database: EngineCatalog.Database? {
    postgresql.map { .init(connection: $0, namespacePrefix: namespacePrefix ?? Self.ownNamespacePrefix) }
  }

  /// The server of this process, if an engine needs it.
  var ownServer: PostgreSQLServer? {
    get throws { try usableEngines.contains { $0.database == .shared } ? .shared : nil }
  }

  private static let ownNamespacePrefix = "stockroom_\(UInt32.random(in: .min ... .max))_"

  /// Starts the server that engines need, and prints which engine is left out.
  private func prepare(_ scratch: URL) async throws {
    if try ownServer != nil {
      // After a signal, the command waits until the server has started, since it cannot be stopped before.
      try await CleaningUp.awaited { try await startServer(below: scratch) }
    }
    // Fails early if the server cannot be reached. The engines would wait for it.
    try await removeNamespaces()
    if leavesServerOut {
      writeToStandardError(
        "PostgreSQL is left out: no server is installed. Name one with --postgresql.\n")
    }
  }

  /// Starts the server of this process. With `--directory`, its data are stored there, if its user may enter that
  /// directory.
  private func startServer(below scratch: URL) async throws {
    let server = PostgreSQLServer.shared
    // The child processes that run checks store the data of their own servers in this directory, so the user of the
    // servers must be able to enter it.
    try PostgreSQLServer.letUserEnter(scratch)
    if directory != nil, try await !server.keepData(below: scratch) {
      writeToStandardError(
        "PostgreSQL keeps its data in \(server.data.path): its user may not enter \(parent.path).\n")
    }
    try await server.start()
  }

  /// Stops the server of this process if its data are below the scratch directory, which is about to be removed.
  /// Otherwise the server stops when the process ends.
  private func discardServer(below scratch: URL) async throws {
    guard PostgreSQLServer.shared.data.isBelow(scratch) else { return }
    try await CleaningUp.awaited { try await PostgreSQLServer.shared.discard() }
  }

  /// Whether the engine stores entries outside of the directory of the engines.
  func isElsewhere(_ engine: EngineCatalog.Entry) -> Bool {
    guard let database = engine.database else { return false }
    return database != .shared || !PostgreSQLServer.shared.data.isBelow(parent)
  }

  /// The checks for engines, which work below a directory.
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

  /// Whether engines store entries in the database of `--postgresql`.
  private var usesDatabase: Bool {
    get throws { try usableEngines.contains { $0.database != nil && $0.database == database } }
  }

  /// The parent of the engines' directories.
  private var parent: URL {
    directory.map { URL(commandLinePath: $0, directoryHint: .isDirectory) }
      ?? FileManager.default.temporaryDirectory
  }

  /// Removes the namespaces from the database of `--postgresql`, if engines have used it. Namespaces on the command's
  /// own server are removed with that server.
  private func removeNamespaces() async throws {
    guard let database, try usesDatabase else { return }
    try await PostgreSQLStorageEngine.removeNamespaces(
      beginningWith: database.namespacePrefix, at: database.connection)
  }

  /// Calls `body` with a new directory, which is removed afterwards, even if `body` throws.
  func withScratchDirectory<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
    // After a signal, the command waits for the clean-up if it must remove namespaces from the database of
    // `--postgresql`, or stop its own server, which may have its data in this directory.
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
    // From here on, errors are only printed: the results are returned even if the server can no longer be reached, or
    // if an engine that hangs still writes to the directory.
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
  /// Whether this path is below that of the directory. Compares the texts of the paths.
  fileprivate func isBelow(_ directory: URL) -> Bool {
    let parent = directory.absoluteURL.path
    return absoluteURL.path.hasPrefix(parent.hasSuffix("/") ? parent : parent + "/")
  }
}
