import ArgumentParser
import BenchmarkKit
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines

/// `stockroom serve`: the worker process of checks and of benchmarks. Not shown in the help.
struct ServeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve",
    abstract: "Runs an engine for the checks or benchmarks of another process.",
    shouldDisplay: false)

  /// What the worker serves.
  enum Client: String, CaseIterable, ExpressibleByArgument {
    case checks, benchmarks
  }

  @Argument(help: "What the engine is run for.")
  var client: Client

  @Argument(help: "The name of an engine.")
  var engine: String

  @Option(help: "When a write is acknowledged.")
  var durability = Durability.full

  @Option(help: "The database of an engine that uses a server.")
  var connection: String?

  @Option(help: "The prefix of the namespaces in that database.")
  var namespacePrefix = EngineCatalog.Database.shared.namespacePrefix

  func validate() throws {
    _ = try EngineCatalog.named([engine])
  }

  func run() async throws {
    let durability = durability
    let database = connection.map {
      EngineCatalog.Database(connection: $0, namespacePrefix: namespacePrefix)
    }
    for entry in try EngineCatalog.named([engine], database: database ?? .shared) {
      switch client {
      case .checks: try await ConformanceWorker.serve { try await entry.open($0, durability) }
      case .benchmarks: try await BenchmarkWorker.serve { try await entry.open($0, durability) }
      }
    }
  }

  /// A worker for checks that runs the executable of this command. Nil if its path is not known.
  static func conformanceWorker(
    for engine: EngineCatalog.Entry, _ durability: Durability
  ) -> ConformanceWorker? {
    Bundle.main.executableURL.map {
      ConformanceWorker(executable: $0, arguments: arguments(.checks, engine, durability))
    }
  }

  /// A worker for benchmarks that runs the executable of this command. Nil if its path is not known.
  static func benchmarkWorker(
    for engine: EngineCatalog.Entry, _ durability: Durability
  ) -> BenchmarkWorker? {
    Bundle.main.executableURL.map {
      BenchmarkWorker(executable: $0, arguments: arguments(.benchmarks, engine, durability))
    }
  }

  private static func arguments(
    _ client: Client, _ engine: EngineCatalog.Entry, _ durability: Durability
  ) -> [String] {
    ["serve", client.rawValue, engine.name, "--durability", durability.rawValue]
      + (engine.database.map { ["--connection", $0.connection, "--namespace-prefix", $0.namespacePrefix] }
        ?? [])
  }
}
