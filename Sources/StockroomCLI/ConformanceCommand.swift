import ArgumentParser
import ConformanceKit
import Foundation
import StockroomCore

/// `stockroom conformance`
struct ConformanceCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "conformance",
    abstract: "Holds the engines to the contract that they promise to keep.",
    discussion: """
      The table has a row for each rule of the contract and a column for each engine, with the number of checks \
      that the engine passed. Which checks apply to an engine depends on what it promises. A check that cannot \
      be made on this machine is skipped, with the reason.
      """)

  @OptionGroup var engineOptions: EngineOptions

  @Option(
    name: .customLong("check"),
    help: ArgumentHelp("A check to make; give it again for another one. (default: all)", valueName: "id"))
  var checks: [String] = []

  @Option(
    name: .customLong("rule"),
    help: ArgumentHelp(
      "A rule to check, such as W2; give it again for another one. (default: all)", valueName: "rule"))
  var rules: [String] = []

  @Flag(help: "Lists the checks instead of making them.")
  var list = false

  func validate() throws {
    for rule in rules where ContractRule(rawValue: rule.uppercased()) == nil {
      let known = ContractRule.allCases.map(\.rawValue).joined(separator: ", ")
      throw ValidationError("There is no rule called \(rule). Rules: \(known).")
    }
    // Which checks there are does not depend on where they are made.
    let anywhere = FileManager.default.temporaryDirectory
    let all = ConformanceRun(
      try engineOptions.engines, durability: engineOptions.durability, in: anywhere
    ).listedChecks
    for check in checks where !all.contains(where: { $0.id == check }) {
      throw ValidationError(
        "There is no check called \(check) for these engines. `stockroom conformance --list` lists them.")
    }
    if try run(in: anywhere).listedChecks.isEmpty {
      throw ValidationError("No check of these rules applies to these engines.")
    }
  }

  func run() async throws {
    if list {
      let checks = try run(in: FileManager.default.temporaryDirectory).listedChecks
      return try writeToStandardOutput(try CheckList(checks).rendered(as: engineOptions.format))
    }
    let results = try await engineOptions.withScratchDirectory { directory in
      try await run(in: directory).results()
    }
    try writeToStandardOutput(try results.rendered(as: engineOptions.format))
    if !results.conforms { throw ExitCode.failure }
  }

  private func run(in directory: URL) throws -> ConformanceRun {
    try ConformanceRun(
      engineOptions.engines, durability: engineOptions.durability, checks: checks,
      rules: rules.compactMap { ContractRule(rawValue: $0.uppercased()) },
      in: directory)
  }
}
