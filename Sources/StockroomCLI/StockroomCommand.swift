import ArgumentParser
import StockroomCore

/// The command line. What each part does is in a file of its own.
@main struct StockroomCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "stockroom",
    abstract: "Holds storage engines to their contract, and races them.",
    discussion: """
      The exit status is 0 if all is well, 1 if a check failed or something broke, and 64 if the command line \
      is wrong.
      """,
    version: "0.1.0",
    subcommands: [
      CompareCommand.self, ConformanceCommand.self, BenchCommand.self,
      ServeChecksCommand.self,
    ])

  static func main() async {
    ignoreBrokenPipes()
    do {
      try await cancellingOnSignal { try await parseAndRun() }
    } catch {
      exit(for: error)
    }
  }

  @concurrent private static func parseAndRun() async throws {
    var command = try await asyncParseAsRoot(nil)
    if var command = command as? any AsyncParsableCommand {
      try await command.run()
    } else {
      try command.run()
    }
  }

  /// Ends the process with the right status. What failed is reported in one line on standard error.
  private static func exit(for error: any Error) -> Never {
    if let error = error as? Interrupted { exit(withError: ExitCode(128 + error.signal)) }
    let status = exitCode(for: error)
    // A request for help or for the version is an error to the parser, and an exit status that a command has
    // thrown needs no words.
    if status == .success || error is ExitCode { exit(withError: error) }
    writeToStandardError("stockroom: \(message(for: error).inOneLine)\n")
    exit(withError: status)
  }
}

extension String {
  /// The text with line breaks replaced by blanks.
  fileprivate var inOneLine: String {
    split(whereSeparator: \.isNewline).joined(separator: " ")
  }
}
