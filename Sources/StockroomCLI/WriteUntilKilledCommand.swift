import ArgumentParser
import BenchmarkKit
import Foundation
import StockroomCore

/// `stockroom write-until-killed`: what tests of crashes kill. Not shown in the help.
struct WriteUntilKilledCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "write-until-killed",
    abstract: "Writes batches for ever, and prints the number of each once it is acknowledged.",
    discussion: "Goes on after the last batch that the directory holds.",
    shouldDisplay: false)

  @Argument(help: "The name of an engine.")
  var engine: String

  @Argument(help: "Where the engine keeps its data. It stays there.")
  var directory: String

  @Option(parsing: .unconditional, help: "What the batches are made from.")
  var seed: UInt64 = 1

  @Option(help: "What an acknowledged write has reached.")
  var durability = Durability.full

  func validate() throws {
    _ = try EngineCatalogue.select([engine])
  }

  func run() async throws {
    for entry in try EngineCatalogue.select([engine]) {
      let engine = try entry.open(URL(filePath: directory, directoryHint: .isDirectory), durability)
      let sequence = BatchSequence(seed: seed)
      var number = try await BatchSequence.last(in: engine)
      while !Task.isCancelled {
        number += 1
        try await engine.apply(sequence.batch(number))
        // One call of the system for each line, so that what is killed never leaves half a line.
        try writeToStandardOutput("\(number)\n")
      }
      try await engine.close()
    }
  }
}
