import ArgumentParser
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines

/// `stockroom conformance`
struct ConformanceCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "conformance",
    abstract: "Checks that the engines follow the storage-engine contract.",
    discussion: """
      The table has a row for each rule of the contract and a column for each engine, with the number of checks \
      that the engine passed. Which checks apply to an engine depends on its capabilities. A check that cannot \
      run on this machine is skipped, with the reason.

      The level decides which checks run and how thorough they are. The checks that make random calls, kill processes, simulate \
      power cuts or corrupt files have options of their own. Each failure is printed with the command that \
      reproduces it.

      After Ctrl-C the results so far are printed, and the exit status is that of the signal.
      """)

  @OptionGroup var engineOptions: EngineOptions

  @OptionGroup var checkOptions: CheckOptions

  @OptionGroup(title: "How hard to search") var budgetOptions: BudgetOptions

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "How many checks run at the same time, each in a process of its own. (default: one, in this process)",
      valueName: "number"))
  var jobs: Int?

  @Option(
    help: ArgumentHelp(
      "Stores the result of each check in this file, and skips checks whose result is there. Results of another build of this command, "
        + "or with other options, are refused.",
      valueName: "file"))
  var resume: String?

  @Option(help: "The format of the results.")
  var format = ConformanceFormat.text

  @Flag(help: "Lists the checks instead of running them.")
  var list = false

  @Option(
    help: ArgumentHelp(
      "Runs no check. Writes the table of check counts for each rule and engine into this Markdown file, between the lines "
        + "\(MarkedSection.conformance.begin) and \(MarkedSection.conformance.end).",
      valueName: "file"))
  var writeMatrix: String?

  func validate() throws {
    try validateCombination()
    // The list of checks does not depend on the directory.
    let anywhere = FileManager.default.temporaryDirectory
    try checkOptions.validate(
      for: suites(of: try engineOptions.engines, in: anywhere), at: budgetOptions.level)
  }

  private func validateCombination() throws {
    if let jobs, !(1...1_000).contains(jobs) {
      throw ValidationError("The number of jobs must be between 1 and 1000, not \(jobs).")
    }
    if resume?.isEmpty == true { throw ValidationError("The path for --resume is empty.") }
    if list, format == .junit { throw ValidationError("A list of checks has no format junit.") }
    if list, writeMatrix != nil { throw ValidationError("--list and --write-matrix exclude each other.") }
    if list || writeMatrix != nil {
      if jobs != nil || resume != nil || engineOptions.directory != nil || engineOptions.postgresql != nil {
        throw ValidationError(
          "--list and --write-matrix run no check, so they exclude --jobs, --resume, --directory and --postgresql."
        )
      }
      if budgetOptions.budget != ConformanceBudget(budgetOptions.level) {
        throw ValidationError(
          "--list and --write-matrix run no check: of the options under HOW HARD TO SEARCH, only --level affects them."
        )
      }
    }
    guard let writeMatrix else { return }
    if writeMatrix.isEmpty { throw ValidationError("The path for --write-matrix is empty.") }
    if !checkOptions.isAll || format != .text {
      throw ValidationError("--write-matrix is about all rules and checks, and always writes Markdown.")
    }
  }

  func run() async throws {
    let anywhere = FileManager.default.temporaryDirectory
    if let writeMatrix {
      return try MarkedSection.conformance.write(
        ConformanceMatrix(suites(of: try engineOptions.engines, in: anywhere)).markdown,
        to: OutputFile(writeMatrix))
    }
    if list {
      let list = CheckList(
        checkOptions.run(of: suites(of: try engineOptions.engines, in: anywhere)).listedChecks)
      return try writeToStandardOutput(
        try list.rendered(as: OutputFormat(rawValue: format.rawValue) ?? .text))
    }
    let resumeFile = try resume.map {
      try ResumeFile(
        OutputFile($0), build: buildDescription(),
        settings: settings(withDatabase: true).map(\.hidingPasswords).joined(separator: " "))
    }
    let results = try await engineOptions.withScratchDirectory { directory in
      try await checkOptions.nonemptyRun(of: suites(of: try engineOptions.usableEngines, in: directory))
        .results(
          reproduction: engineOptions.reproduction(budgetOptions), jobs: jobs ?? 1,
          // The processes work in this directory. What a process leaves behind if it ends in the middle of a check is
          // removed with the directory.
          processes: jobs == nil
            ? nil
            : ConformanceProcesses(
              arguments: settings(withDatabase: false) + [
                "--directory", directory.path(percentEncoded: false),
              ], database: engineOptions.database, server: try engineOptions.ownServer?.connection),
          resume: resumeFile
        ) { [format] in try writeToStandardOutput(try $0.rendered(as: format)) }
    }
    try writeToStandardOutput(try results.rendered(as: format))
    // Last, so that the results are printed even if the file cannot be written.
    try resumeFile?.finish()
    if !results.isConforming { throw ExitCode.failure }
  }

  /// The options that the result of a check depends on. A password may be among them.
  private func settings(withDatabase hasDatabase: Bool) -> [String] {
    budgetOptions.arguments(seed: budgetOptions.seed) + engineOptions.surroundings(withDatabase: hasDatabase)
  }

  private func suites(of engines: [EngineCatalog.Entry], in directory: URL) -> [ConformanceSuite] {
    engineOptions.suites(of: engines, budget: budgetOptions.budget, in: directory)
  }
}

extension ConformanceResults {
  /// The results in a format, with a newline at the end.
  fileprivate func rendered(as format: ConformanceFormat) throws -> String {
    switch format {
    case .text: text
    case .markdown: markdown
    case .json: String(decoding: try json(), as: UTF8.self)
    case .junit: junit
    }
  }
}
