import ArgumentParser
import BenchmarkKit
import Foundation
import StockroomCore
import StockroomStore

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

  @Flag(help: "Replace the items of a store, again and again, in place of writing batches.")
  var chains = false

  func validate() throws {
    _ = try EngineCatalogue.select([engine])
  }

  func run() async throws {
    for entry in try EngineCatalogue.select([engine]) {
      let engine = try entry.open(URL(filePath: directory, directoryHint: .isDirectory), durability)
      if chains {
        try await replaceItems(in: engine)
      } else {
        try await writeBatches(to: engine)
      }
      try await engine.close()
    }
  }

  private func writeBatches(to engine: any StorageEngine) async throws {
    let sequence = BatchSequence(seed: seed)
    var number = try await BatchSequence.last(in: engine)
    while !Task.isCancelled {
      number += 1
      try await engine.apply(sequence.batch(number))
      try acknowledge(number)
    }
  }

  private func replaceItems(in engine: any StorageEngine) async throws {
    let store = try await Store<ItemOfGeneration>(storage: engine)
    var number = await store.items.first?.generation ?? 0
    while !Task.isCancelled {
      number += 1
      try await store.removeAll().insert(ItemOfGeneration.all(of: number)).run()
      try acknowledge(number)
    }
  }

  private func acknowledge(_ number: Int) throws {
    // One call of the system for each line, so that what is killed never leaves half a line.
    try writeToStandardOutput("\(number)\n")
  }
}

/// One of the items that are in a store together: all of a generation, or all of the next.
struct ItemOfGeneration: Codable, Sendable, Identifiable, Equatable {
  let id: String
  let generation: Int

  /// A thousand items, half of which have identifiers that the generation before has as well.
  static func all(of generation: Int) -> [ItemOfGeneration] {
    (0..<1_000).map { ItemOfGeneration(id: "\(generation * 500 + $0)", generation: generation) }
  }
}
