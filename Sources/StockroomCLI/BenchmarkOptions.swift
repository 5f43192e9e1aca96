import ArgumentParser
import BenchmarkKit
import Foundation
import StockroomCore

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
        let problem =
          name.isEmpty ? "The name of the workload is empty." : "There is no workload called \(name)."
        throw ValidationError("\(problem)\(suggestion) `stockroom bench --help` lists the groups.")
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
