import ArgumentParser
import BenchmarkKit
import Foundation
import PeerEngines
import PerformanceBudget
import StockroomCore
import StockroomEngines

/// Measures Stockroom's engines and their peers in one run, and compares them with the limits.
@main
struct PeersCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "peers",
    abstract: "Compares Stockroom with the C libraries that it uses, and with other Swift libraries.",
    discussion: """
      Prints every ratio next to its limit. The exit status is 0 if all limits are met, 1 if one is missed or an error occurred, 64 if \
      the command line is invalid, and 128 plus the signal's number if a signal ended the command.

      Limits:
      \(Limit.all.map { "  \($0.name)" }.joined(separator: "\n"))
      """)

  @Option(help: "The number of records, unless the workload has its own.") var entries = 100_000
  @Option(help: "The mean size of a value in bytes.") var valueSize = 100
  @Option(help: "The number of measurements, after a warm-up.") var repetitions = 5
  @Option(
    help:
      "When a write is acknowledged: once it is on the disk (full), or with the operating system (process).")
  var durability = Durability.full
  @Option(help: "How the table is printed.") var format = Format.text
  @Option(
    help: ArgumentHelp(
      "The parent of the engines' directories, which are removed afterwards. (default: the system's temporary directory)",
      valueName: "path"))
  var directory: String?
  @Option(
    help: ArgumentHelp(
      "A limit, or a group of limits: the part of their names before a slash. Repeat it for more. "
        + "(default: all)", valueName: "name"))
  var only: [String] = []

  enum Format: String, CaseIterable, ExpressibleByArgument {
    case text, markdown, json
  }

  func validate() throws {
    for name in only where !Limit.all.contains(where: { $0.isSelected(by: name) }) {
      throw ValidationError("There is no limit called \(name). See --help for all of them.")
    }
    if directory?.isEmpty == true { throw ValidationError("The path for --directory is empty.") }
    try checkArguments()
    do { try configuration.validate() } catch { throw ValidationError("\(error)") }
  }

  func run() async throws {
    let limits = limits
    let report: BenchmarkReport
    do {
      report = try await untilInterrupted {
        let line = ProgressLine()
        defer { line.clear() }
        return try await withServerData { isElsewhere in
          try await BenchmarkRunner(configuration: configuration).run(
            subjects(serverIsElsewhere: isElsewhere)
          ) { line.show($0.description) }
        }
      }
    } catch let error as SignalReceived {
      if let cause = error.cause { say("\(cause)") }
      throw ExitCode(128 + error.signal)
    }
    let results = BudgetReport(limits, in: report)
    let text =
      switch format {
      case .text: results.text
      case .markdown: results.markdown
      case .json: String(decoding: try results.json(), as: UTF8.self) + "\n"
      }
    // Unlike `print`, this throws if writing fails.
    try FileHandle.standardOutput.write(contentsOf: Data(text.utf8))
    if !results.areAllMet { throw ExitCode(1) }
  }

  /// Throws if an argument is not UTF-8: Swift would replace the invalid bytes, and a path would be a different one.
  private func checkArguments() throws {
    for index in 0..<Int(CommandLine.argc) {
      guard let argument = CommandLine.unsafeArgv[index] else { continue }
      guard String(validatingCString: argument) != nil else {
        throw ValidationError("Argument \(index) is not UTF-8.")
      }
    }
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

  private var chosenSubjects: [Subject] {
    let workloads = limits.workloadsOfSubjects
    return Subject.all.filter { workloads[$0.name] != nil }
  }

  /// The subjects of the limits, each with its workloads.
  private func subjects(serverIsElsewhere: Bool) -> [BenchmarkSubject] {
    let workloads = limits.workloadsOfSubjects
    let durability = durability
    return chosenSubjects.map { subject in
      BenchmarkSubject(
        subject.name, workloads: workloads[subject.name], isElsewhere: subject.usesServer && serverIsElsewhere
      ) { try await subject.open($0, durability) }
    }
  }

  /// Calls `body`. If a directory is given and a server is needed, the server's data are below the directory meanwhile,
  /// if its user can enter it.
  ///
  /// - Parameter body: Its argument is whether the data are elsewhere.
  private func withServerData(
    _ body: (Bool) async throws -> BenchmarkReport
  ) async throws -> BenchmarkReport {
    // Without a directory, they are in the system's temporary directory, as the engines' are, until this process ends.
    guard directory != nil, chosenSubjects.contains(where: \.usesServer) else { return try await body(false) }
    let server = PostgreSQLServer.shared
    let isBelow = try await server.keepData(below: configuration.directory)
    if !isBelow {
      say("PostgreSQL keeps its data in \(server.data.path): its user may not enter the directory.")
    }
    do {
      let report = try await body(!isBelow)
      try await server.discard()
      return report
    } catch let cause {
      do {
        try await server.discard()
      } catch {
        say("The data of PostgreSQL in \(server.data.path) could not be removed: \(error)")
      }
      throw cause
    }
  }

  private func say(_ line: String) { FileHandle.standardError.write(Data("\(line)\n".utf8)) }
}

extension Durability: @retroactive ExpressibleByArgument {}
