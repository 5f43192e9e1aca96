import ArgumentParser
import BenchmarkKit
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL

/// Parses a seed.
///
/// - Throws: `ValidationError` with the range of seeds.
func parseSeed(_ argument: String) throws -> UInt64 {
  guard let seed = UInt64(argument) else {
    throw ValidationError("The seed must be a whole number between 0 and \(UInt64.max), not \(argument).")
  }
  return seed
}

/// The format of results.
enum OutputFormat: String, CaseIterable, ExpressibleByArgument {
  case text, markdown, json
}

/// The format of the results of checks.
enum ConformanceFormat: String, CaseIterable, ExpressibleByArgument {
  case text, markdown, json, junit
}

extension Durability: ExpressibleByArgument {}

/// The options that all commands share.
struct EngineOptions: ParsableArguments {
  @Option(
    name: .customLong("engine"),
    help: ArgumentHelp(
      "An engine; repeat it for more. (values: \(EngineCatalogue.list); default: all)",
      valueName: "name"))
  var names: [String] = []

  @Option(
    name: .customLong("layer"),
    help: ArgumentHelp(
      "A layer in front of each engine; repeat it for several, the last one outermost. (values: \(EngineCatalogue.listOfLayers))",
      valueName: "name"))
  var layers: [String] = []

  @Option(
    help: ArgumentHelp(
      "An existing or new directory in which the engines' directories are made and removed. It stays itself. "
        + "(default: the system's temporary directory)",
      valueName: "path"))
  var directory: String?

  @Option(
    help:
      "When a write is acknowledged: once it is on the disk (full), or with the operating system (process).")
  var durability = Durability.full

  @Option(
    help: ArgumentHelp(
      "The database for the engine on PostgreSQL, as libpq takes it. Keep the password in PGPASSWORD or ~/.pgpass. "
        + "(default: a server of its own, if one is installed)", valueName: "connection"))
  var postgresql: String?

  /// Those that are named, or all.
  var engines: [EngineCatalogue.Entry] {
    get throws {
      try EngineCatalogue.named(names, layers: layers, database: database ?? .shared)
    }
  }

  /// Those that can be used here: without names, PostgreSQL only where there is a server.
  var usableEngines: [EngineCatalogue.Entry] {
    get throws { try engines.filter { !leavesServerOut || $0.database == nil } }
  }

  private var leavesServerOut: Bool {
    names.isEmpty && postgresql == nil && PostgreSQLServer.installedPrograms() == nil
  }

  /// The part of somebody's database that this process has.
  private var database: EngineCatalogue.Database? {
    postgresql.map { .init(connection: $0, namespacePrefix: Self.namespacePrefix) }
  }

  /// The server of this process, if an engine needs it.
  var ownServer: PostgreSQLServer? {
    get throws { try usableEngines.contains { $0.database == .shared } ? .shared : nil }
  }

  private static let namespacePrefix = "stockroom_\(UInt32.random(in: .min ... .max))_"

  /// Starts the server that engines need, and says which engine is left out.
  private func prepare(_ scratch: URL) async throws {
    if try ownServer != nil {
      // A server that is being started cannot be stopped.
      try await CleaningUp.awaited { try await startServer(below: scratch) }
    }
    // Finds out soon whether the server is there, which engines wait for.
    if try usesDatabase { try await removeNamespaces() }
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
  func isElsewhere(_ engine: EngineCatalogue.Entry) -> Bool {
    guard let database = engine.database else { return false }
    return database != .shared || !PostgreSQLServer.shared.data.isBelow(parent)
  }

  /// The checks for engines, below a directory.
  func suites(
    of engines: [EngineCatalogue.Entry], budget: ConformanceBudget = ConformanceBudget(), in directory: URL
  ) -> [ConformanceSuite] {
    engines.map { $0.suite(durability: durability, budget: budget, in: directory) }
  }

  func validate() throws {
    _ = try engines
    if let directory, directory.isEmpty { throw ValidationError("The path for --directory is empty.") }
    if let postgresql, postgresql.isEmpty {
      throw ValidationError("The connection for --postgresql is empty.")
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

  /// Leaves nothing in somebody's database. A server of one's own goes as a whole.
  private func removeNamespaces() async throws {
    guard let database else { return }
    try await PostgreSQLStorageEngine.removeNamespaces(
      beginningWith: database.namespacePrefix, at: database.connection)
  }

  /// Calls `body` with a new directory, which is removed afterwards, also if `body` throws.
  func withScratchDirectory<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
    // What is left in somebody's database stays there, unlike temporary files; and a server of one's own may have its data in the
    // directory, which go when it has ended.
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
        writeToStandardError(
          "Schemas whose names begin with \(Self.namespacePrefix) may be left in the database: \(remainder)\n"
        )
      }
      try? await discardServer(below: scratch.url)
      try? ScratchDirectories.remove(scratch)
      throw error
    }
    try await removeNamespaces()
    do {
      try await discardServer(below: scratch.url)
      try ScratchDirectories.remove(scratch)
    } catch {
      // An engine that hangs may still write there. That must not cost the results.
      writeToStandardError("\(error)\n")
    }
    return result
  }
}

extension URL {
  /// Whether this is the path of something in the directory, by the names alone.
  fileprivate func isBelow(_ directory: URL) -> Bool {
    let parent = directory.absoluteURL.path
    return absoluteURL.path.hasPrefix(parent.hasSuffix("/") ? parent : parent + "/")
  }
}

/// The options of the measurements.
struct BenchmarkOptions: ParsableArguments {
  // Numbers are parsed unconditionally so that a negative one is not taken for an option.
  @Option(
    parsing: .unconditional, help: ArgumentHelp("The number of records.", valueName: "number"))
  var entries = BenchmarkConfiguration().entries

  @Option(
    parsing: .unconditional, help: ArgumentHelp("The mean size of a value in bytes.", valueName: "bytes"))
  var valueSize = BenchmarkConfiguration().valueSize

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("The number of measurements, after a warm-up.", valueName: "number"))
  var repetitions = BenchmarkConfiguration().repetitions

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "The seed of keys, values and their order, from 0 to 18446744073709551615. (default: 1)",
      valueName: "number"), transform: parseSeed)
  var seed = BenchmarkConfiguration().seed

  @Option(
    name: .customLong("workload"),
    help: ArgumentHelp(
      "A workload, or a group of workloads; repeat it for more. (groups: \(Self.groups), all; "
        + "default: standard)",
      valueName: "name"))
  var names: [String] = []

  func validate() throws {
    do {
      try configuration(directory: FileManager.default.temporaryDirectory, durability: .full).validate()
    } catch let error as BenchmarkError {
      throw ValidationError(error.description)
    }
  }

  func configuration(directory: URL, durability: Durability) throws -> BenchmarkConfiguration {
    let selected = try names.flatMap { name in
      guard let workloads = Workload.named(name) else {
        let names = Workload.groups.map(\.name) + ["all"] + Workload.all.map(\.name)
        let suggestion = name.mostSimilar(in: names).map { " Did you mean \($0)?" } ?? ""
        throw ValidationError(
          "There is no workload called \(name).\(suggestion) `stockroom bench --help` lists the groups.")
      }
      return workloads
    }
    let chosen = Set(selected.map(\.name))
    return BenchmarkConfiguration(
      entries: entries, valueSize: valueSize, repetitions: repetitions, seed: seed,
      workloads: names.isEmpty ? Workload.standard : Workload.all.filter { chosen.contains($0.name) },
      directory: directory, durability: durability.rawValue, software: softwareVersions)
  }

  private static var groups: String { Workload.groups.map(\.name).joined(separator: ", ") }
}

extension String {
  /// The first of the names that differ from this one in the fewest characters; nil if all differ in more than a third of them.
  func mostSimilar(in names: [String]) -> String? {
    let distances = names.map { (name: $0, distance: distance(to: $0)) }
    guard let best = distances.min(by: { $0.distance < $1.distance }), best.distance * 3 <= count else {
      return nil
    }
    return best.name
  }

  /// How many characters have to be inserted, removed or replaced to make the other text (Levenshtein's distance).
  private func distance(to other: String) -> Int {
    let other = Array(other)
    var row = Array(0...other.count)
    for (line, character) in enumerated() {
      var diagonal = row[0]
      row[0] = line + 1
      for column in other.indices {
        let replaced = diagonal + (character == other[column] ? 0 : 1)
        diagonal = row[column + 1]
        row[column + 1] = Swift.min(replaced, diagonal + 1, row[column] + 1)
      }
    }
    return row[other.count]
  }
}
