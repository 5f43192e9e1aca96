import ArgumentParser
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines

/// `stockroom serve-checks`: the process that checks kill. Not shown in the help.
struct ServeChecksCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "serve-checks",
    abstract: "Does with an engine what the checks of another process ask for.",
    shouldDisplay: false)

  @Argument(help: "The name of an engine.")
  var engine: String

  @Option(help: "What an acknowledged write has reached.")
  var durability = Durability.full

  func validate() throws {
    _ = try EngineCatalogue.named([engine])
  }

  func run() async throws {
    let durability = durability
    for entry in try EngineCatalogue.named([engine]) {
      try await ConformanceWorker.serve { try entry.open($0, durability) }
    }
  }
}

extension ConformanceWorker {
  /// This very command, serving an engine.
  static func ofThisCommand(_ engine: EngineCatalogue.Entry, _ durability: Durability) -> ConformanceWorker? {
    Bundle.main.executableURL.map {
      ConformanceWorker(
        executable: $0, arguments: ["serve-checks", engine.name, "--durability", durability.rawValue])
    }
  }
}
