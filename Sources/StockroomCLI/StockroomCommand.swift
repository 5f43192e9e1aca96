import ArgumentParser
import StockroomCore

/// The command line.
@main struct StockroomCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "stockroom",
    abstract: "Reads and changes the data of storage engines, checks engines, and compares their speed.",
    discussion: """
      The exit status is 0 on success, 1 if a check failed or an error occurred, 64 if the command line is \
      invalid, and 128 plus the signal's number if a signal ended the command.

      Places are written \(Place.spellings). Commands that only read a place open it read-only if its engine can. Only put --create, \
      copy, backup, restore and import create a place.
      """,
    version: "0.1.0",
    subcommands: [ServeCommand.self],
    groupedSubcommands: [
      CommandGroup(
        name: "Data",
        subcommands: [
          ListCommand.self, GetCommand.self, PutCommand.self, RemoveCommand.self, CountCommand.self,
          WatchCommand.self, VerifyCommand.self,
          CopyCommand.self, BackupCommand.self, DumpCommand.self, RestoreCommand.self,
          ImportCommand.self,
        ]),
      CommandGroup(
        name: "Engines", subcommands: [CompareCommand.self, ConformanceCommand.self, BenchCommand.self]),
    ])

  static func main() async {
    reserveClosedStandardStreams()
    ignoreBrokenPipes()
    do {
      try await cancellingOnSignal { try await parseAndRun() }
    } catch {
      exit(for: error)
    }
  }

  @concurrent private static func parseAndRun() async throws {
    try CommandLineEncoding.checkArguments()
    var command = try await asyncParseAsRoot(nil)
    // Every command except `help`, which does not need the current directory.
    if var command = command as? any AsyncParsableCommand {
      try CommandLineEncoding.checkCurrentDirectory()
      try await command.run()
    } else {
      try command.run()
    }
  }

  /// Exits with the status of the error, after one line on standard error.
  private static func exit(for error: any Error) -> Never {
    if let error = error as? Interrupted {
      if let remainder = error.remainder { write(remainder) }
      exit(withError: ExitCode(128 + error.signal))
    }
    let status = exitCode(for: error)
    // An exit status has no message.
    if error is ExitCode { exit(withError: error) }
    // The parser throws requests for help and for the version.
    if status == .success {
      do {
        try writeToStandardOutput(fullMessage(for: error) + "\n")
      } catch {
        exit(for: error)
      }
      exit(withError: status)
    }
    write(error)
    exit(withError: status)
  }

  private static func write(_ error: any Error) {
    let message = message(for: error).withoutPasswords.inOneLine
    let hint =
      message.hasPrefix("Unexpected argument") ? hint(insteadOf: CommandLine.arguments.dropFirst().first) : ""
    writeToStandardError("stockroom: \(message)\(hint)\n")
  }

  /// The text to append to the message if the first argument is not the name of a command.
  private static func hint(insteadOf argument: String?) -> String {
    let commands = configuration.subcommands.map { $0.configuration }
    guard let argument, !commands.contains(where: { $0.commandName == argument }) else { return "" }
    let names = commands.filter(\.shouldDisplay).compactMap(\.commandName)
    let suggestion = argument.mostSimilar(in: names).map { " Did you mean \($0)?" } ?? ""
    return ".\(suggestion) `stockroom --help` lists the commands."
  }
}

extension String {
  /// The text with newlines replaced by spaces, and with escapes for control and invisible characters.
  fileprivate var inOneLine: String {
    split(whereSeparator: \.isNewline).joined(separator: " ").withoutControls
  }
}
