import ArgumentParser
import BenchmarkKit
import Foundation
import PeerEngines
import SpeedLimits
import StockroomCore

/// Measures Stockroom's engines and their peers in one run, and holds them to the limits.
@main
struct PeersCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "peers",
    abstract: "Measures Stockroom against the C libraries below it, and against others.",
    discussion: """
      Prints every ratio next to its limit. The exit status is 0 if all limits are kept, and 1 if one is missed.

      Limits:
      \(Limit.all.map { "  \($0.name)" }.joined(separator: "\n"))
      """)

  @Option(help: "How many records there are, where the limit does not say.") var entries = 100_000
  @Option(help: "The mean size of a value in bytes.") var valueSize = 100
  @Option(help: "How often everything is measured, after a warm-up.") var repetitions = 5
  @Option(help: "What an acknowledged write has reached: the disk (full), or the operating system (process).")
  var durability = Durability.full
  @Option(help: "How the table is printed.") var format = Format.text
  @Option(
    help: ArgumentHelp(
      "Where the data is meanwhile. (default: the system's temporary directory)", valueName: "path"))
  var directory: String?
  @Option(
    help: ArgumentHelp(
      "A limit to look at, or the beginning of the names of several, up to a slash; give it again for more. "
        + "(default: all)", valueName: "name"))
  var only: [String] = []

  enum Format: String, CaseIterable, ExpressibleByArgument {
    case text, markdown, json
  }

  func validate() throws {
    for name in only where !Limit.all.contains(where: { $0.isSelected(by: name) }) {
      throw ValidationError("There is no limit called \(name). See --help for all of them.")
    }
    do { try configuration.validate() } catch { throw ValidationError("\(error)") }
  }

  func run() async throws {
    let limits = limits
    let report = try await untilInterrupted {
      let line = ProgressLine()
      defer { line.clear() }
      return try await BenchmarkRunner(configuration: configuration).run(subjects) {
        line.show($0.description)
      }
    }
    let verdicts = SpeedReport(limits, in: report)
    switch format {
    case .text: print(verdicts.text, terminator: "")
    case .markdown: print(verdicts.markdown, terminator: "")
    case .json: print(String(decoding: try verdicts.json(), as: UTF8.self))
    }
    if !verdicts.areAllKept { throw ExitCode(1) }
  }

  private var limits: [Limit] {
    only.isEmpty
      ? Limit.all : Limit.all.filter { limit in only.contains { limit.isSelected(by: $0) } }
  }

  private var configuration: BenchmarkConfiguration {
    BenchmarkConfiguration(
      entries: entries, valueSize: valueSize, repetitions: repetitions, workloads: limits.workloads,
      directory: directory.map { URL(filePath: $0, directoryHint: .isDirectory) }
        ?? FileManager.default.temporaryDirectory,
      durability: durability.rawValue)
  }

  /// Those that the limits name, each in the workloads in which they name it.
  private var subjects: [BenchmarkSubject] {
    let workloads = limits.workloadsOfSubjects
    let durability = durability
    return Subject.all.filter { workloads[$0.name] != nil }.map { subject in
      BenchmarkSubject(subject.name, workloads: workloads[subject.name]) {
        try subject.open($0, durability)
      }
    }
  }
}

extension Durability: @retroactive ExpressibleByArgument {}
