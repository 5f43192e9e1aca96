import ArgumentParser
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomPostgreSQL

extension EngineCatalog {
  /// The engines with these names, each once, in the order of the catalog, with layers in front; all engines if there
  /// are no names.
  ///
  /// - Parameter database: The database of the PostgreSQL engine.
  /// - Throws: `ValidationError`, for which the exit status is 64, if no engine or layer has one of the names.
  static func named(
    _ names: [String], layers: [String] = [], database: Database = .shared
  ) throws -> [Entry] {
    do {
      let layers = try selectLayers(layers)
      return try select(names).map { $0.moved(to: database).layered(by: layers) }
    } catch let error as UnknownEngine {
      throw ValidationError(error.description)
    }
  }

  /// The name of the engine with a title; the title if there is no such engine.
  static func name(titled title: String) -> String { all.first { $0.title == title }?.name ?? title }

  /// Whether the engine with this name, which layers may follow, stores entries in a database.
  static func usesDatabase(_ name: String) -> Bool {
    all.contains { $0.database != nil && (name == $0.name || name.hasPrefix($0.name + "+")) }
  }
}

extension EngineCatalog.Entry {
  /// The checks for the engine, which work below a directory.
  func suite(
    durability: Durability = .full, budget: ConformanceBudget = ConformanceBudget(), in directory: URL
  ) -> ConformanceSuite {
    ConformanceSuite(
      title, capabilities: capabilities(at: durability), workingDirectory: directory, budget: budget,
      worker: ServeCommand.conformanceWorker(for: self, durability),
      // Checks may kill the server only if this process has started it.
      server: database == .shared ? .postgreSQL(for: self) : nil
    ) { try await open($0, durability) }
  }
}

extension ConformanceServer {
  /// The server of this process, for the checks that act on a server.
  fileprivate static func postgreSQL(for entry: EngineCatalog.Entry) -> ConformanceServer {
    @Sendable func engine(
      _ directory: URL, _ port: UInt16,
      _ parameters: String = "user=postgres dbname=postgres password=not-asked-for"
    ) async throws -> any StorageEngine {
      try entry.withLayers(
        on: try await PostgreSQLStorageEngine(
          "host=127.0.0.1 port=\(port) sslmode=disable \(parameters)",
          namespace: EngineCatalog.Database.shared.namespace(for: directory), maximumConnections: 5,
          timeLimit: .seconds(3)))
    }
    return ConformanceServer(
      address: .unixSocket(PostgreSQLServer.shared.socket), timeLimit: .seconds(3), maximumConnections: 5,
      secret: "not-asked-for",
      refusals: [
        Refusal("a user who does not exist", secret: "not-the-password") {
          try await engine($0, $1, "user=nobody dbname=postgres password=not-the-password")
        },
        Refusal("a database that does not exist", code: .unsupported) {
          try await engine($0, $1, "user=postgres dbname=nowhere")
        },
      ],
      start: { try await PostgreSQLServer.shared.start() },
      kill: { await PostgreSQLServer.shared.stop(.immediate) }
    ) { try await engine($0, $1) }
  }
}
