import Foundation
import Testing

@Suite("The command line") struct UsageTests {
  /// Invalid command lines and their messages. The explicit type shortens compilation.
  private static let wrongUsages: [([String], String)] = [
    (
      ["conformance", "--engine", "nonsense"], "There is no engine called nonsense. Engines: memory, "
    ),
    (["compare", "--engine", "memory", "--engine", "nonsense"], "There is no engine called nonsense."),
    (["bench", "--entries", "-1"], "The number of entries must be between 1 and 10000000, not -1."),
    (["bench", "--entries", "0"], "The number of entries must be between 1 and 10000000, not 0."),
    (["bench", "--entries", "ten"], "'ten' is invalid for '--entries"),
    (["bench", "--repetitions", "0"], "The number of repetitions must be between 1 and 1000, not 0."),
    (["compare", "--value-size", "-1"], "The value size in bytes must be between 0 and 67108864, not -1."),
    (["bench", "--entries", "9999999", "--value-size", "67108864"], "this machine's memory"),
    (
      ["bench", "--seed", "-1"], "The seed must be a whole number between 0 and 18446744073709551615, not -1."
    ),
    (["bench", "--workload", "sleep"], "There is no workload called sleep. `stockroom bench --help` lists"),
    (["bench", "--workload", "raed-one"], "no workload called raed-one. Did you mean read-one? `stockroom"),
    (["bench", "--workload", ""], "The name of the workload is empty. `stockroom bench --help` lists"),
    (["bench", "--engine", ""], "The name of the engine is empty. Engines: memory, "),
    (["bench", "--format", "yaml"], "'text', 'markdown' or 'json'"),
    (["bench", "--durability", "none"], "'none' is invalid"),
    (["bench", "--directory", ""], "The path for --directory is empty."),
    (["conformance", "--postgresql", ""], "The connection for --postgresql is empty."),
    (
      ["conformance", "--engine", "memory", "--engine", "lmdb+compressed", "--postgresql", "host=h"],
      "--postgresql is for the engine postgresql, which --engine leaves out."
    ),
    (["bench", "--engine", "sqlite", "--postgresql", "host=h"], "--postgresql is for the engine postgresql"),
    (
      ["compare", "--engine", "files", "--postgresql", "host=h"], "--postgresql is for the engine postgresql"
    ),
    (["bench", "--baseline", ""], "The path for --baseline is empty."),
    (["conformance", "--check", "nope"], "There is no check called nope"),
    (["conformance", "--check", "keys.csae"], "for these engines. Did you mean keys.case? `stockroom"),
    (["conformance", "--check", ""], "The name for --check is empty."),
    (["conformance", "--rule", ""], "The name for --rule is empty."),
    (["compare", "--check", "nope"], "There is no check called nope"),
    (["conformance", "--rule", "Z9"], "There is no rule called Z9."),
    (["conformance", "--engine", "memory", "--rule", "W6"], "No check of these rules applies"),
    (
      ["conformance", "--operations", "0"],
      "The number of operations must be between 1 and 1000000000, not 0."
    ),
    (
      ["conformance", "--operations", "-5"],
      "The number of operations must be between 1 and 1000000000, not -5."
    ),
    (["conformance", "--level", "slow"], "'quick', 'standard' or 'exhaustive'"),
    (["conformance", "--jobs", "0"], "The number of jobs must be between 1 and 1000, not 0."),
    (["conformance", "--resume", ""], "The path for --resume is empty."),
    (["conformance", "--operations", "1e6"], "'1e6' is invalid for '--operations"),
    (["conformance", "--operations", "99999999999999999999"], "is invalid for '--operations"),
    (["conformance", "--minutes", "0"], "The number of minutes must be above 0 and at most 10080, not 0."),
    (["conformance", "--minutes", "-1.5"], "must be above 0 and at most 10080, not -1.5."),
    (["conformance", "--minutes", "nan"], "must be above 0 and at most 10080, not nan."),
    (["conformance", "--minutes", "inf"], "must be above 0 and at most 10080, not inf."),
    (["conformance", "--minutes", "a lot"], "'a lot' is invalid for '--minutes"),
    (["conformance", "--kills", "0"], "The number of kills must be between 1 and 1000000, not 0."),
    (
      ["conformance", "--kills", "1000001"],
      "The number of kills must be between 1 and 1000000, not 1000001."
    ),
    (
      ["conformance", "--power-cuts", "0"],
      "The number of power cuts must be between 1 and 1000000000, not 0."
    ),
    (["conformance", "--power-cuts", "some"], "'some' is invalid for '--power-cuts <number|all>'"),
    (
      ["conformance", "--corruptions", "-1"],
      "The number of corruptions must be between 1 and 100000000, not -1."
    ),
    (
      ["conformance", "--seed", "x"],
      "The seed must be a whole number between 0 and 18446744073709551615, not x."
    ),
    (["conformance", "--format", "xml"], "'text', 'markdown', 'json' or 'junit'"),
    (["conformance", "--list", "--format", "junit"], "A list of checks has no format junit."),
    (["conformance", "--list", "--write-matrix", "x"], "--list and --write-matrix exclude each other."),
    (
      ["conformance", "--list", "--jobs", "2"], "run no check, so they exclude --jobs, --resume, --directory"
    ),
    (["conformance", "--write-matrix", "x", "--resume", "y"], "so they exclude --jobs, --resume, "),
    (["conformance", "--list", "--directory", "x"], "so they exclude --jobs, --resume, --directory and "),
    (["conformance", "--write-matrix", "x", "--postgresql", "host=h"], " --directory and --postgresql."),
    (
      ["conformance", "--list", "--kills", "5"],
      "of the options under HOW HARD TO SEARCH, only --level affects them."
    ),
    (["conformance", "--write-matrix", "x", "--minutes", "1"], "only --level affects them"),
    (["conformance", "--write-matrix", ""], "The path for --write-matrix is empty."),
    (
      ["conformance", "--write-matrix", "x", "--rule", "K1"], "--write-matrix is about all rules and checks"
    ),
    (["conformance", "--write-matrix", "x", "--format", "json"], "and always writes Markdown."),
    (["bench", "--html", ""], "The path for --html is empty."),
    (["bench", "--write-results", ""], "The path for --write-results is empty."),
    (["bench", "--write-results", "x.html"], "--write-results writes Markdown: its file ends with .md"),
    (["bench", "--write-results", "x.md", "--html", "x.svg"], "need a file each."),
    (
      ["bench", "--format", "junit"],
      "'junit' is invalid for '--format <format>'. Please provide one of 'text',"
    ),
    (
      ["compare", "--format", "junit"],
      "'junit' is invalid for '--format <format>'. Please provide one of 'text',"
    ),
    (["bench", "--kills", "3"], "Unknown option '--kills'"),
    (["serve", "checks", "nonsense"], "There is no engine called nonsense."),
    (["conformance", "--layer", "nonsense"], "There is no layer called nonsense. Layers: compressed"),
    (["bench", "--engine", "memory+nonsense"], "There is no layer called nonsense. Layers: "),
    (["race"], "Unexpected argument 'race'. `stockroom --help` lists the commands."),
    (["confromance"], "'confromance'. Did you mean conformance? `stockroom --help`"),
    (["bench", "--fast"], "Unknown option '--fast'"),
  ]

  @Test("Every command has help", arguments: ["compare", "conformance", "bench"])
  func help(command: String) async throws {
    let overview = try await CommandLineTool.run("--help")
    #expect(overview.status == 0)
    #expect(overview.standardOutput.contains("\n  \(command) "))

    let help = try await CommandLineTool.run(command, "--help")
    #expect(help.status == 0)
    #expect(help.standardError == "")
    for option in ["--engine", "--format", "--directory", "--durability"] {
      #expect(help.standardOutput.contains("\n  \(option) "))
    }
    #expect(help.standardOutput.contains("sqlite"))
  }

  @Test(
    "Every command about data has help with an example",
    arguments: [
      "list", "get", "put", "remove", "count", "watch", "verify", "copy", "backup", "dump", "restore",
      "import",
    ])
  func dataHelp(command: String) async throws {
    #expect(try await CommandLineTool.run("--help").standardOutput.contains("\n  \(command) "))
    let help = try await CommandLineTool.run(command, "--help")
    #expect(help.status == 0)
    #expect(help.standardError == "")
    #expect(help.standardOutput.contains(#/Examples?:\n  stockroom \w+ /#))
    #expect(help.standardOutput.contains("\n  --format "))
  }

  @Test("The help for bench says of each group of workloads how long it takes")
  func groupDurations() async throws {
    let help = try await CommandLineTool.run("bench", "--help").standardOutput
    let text = try #require(
      help.components(separatedBy: "Groups of workloads:").last?.components(separatedBy: "USAGE:").first)
    // A description may continue on the next line.
    let groups = text.split(separator: #/\n  (?=\w+: )/#).dropFirst(text.hasPrefix("\n  ") ? 0 : 1)
    #expect(groups.count >= 10)
    for group in groups { #expect(group.contains("minute")) }
  }

  @Test("Hidden commands are not shown")
  func hidden() async throws {
    #expect(try await !CommandLineTool.run("--help").standardOutput.contains("\n  serve"))
  }

  @Test("--version prints a version")
  func version() async throws {
    let output = try await CommandLineTool.run("--version")
    #expect(output.status == 0)
    #expect(output.standardOutput.wholeMatch(of: /\d+\.\d+\.\d+\n/) != nil)
  }

  @Test(
    "Invalid usage prints one line on standard error, with status 64",
    arguments: wrongUsages)
  func wrongUsage(arguments: [String], message: String) async throws {
    let output = try await CommandLineTool.run(arguments)
    #expect(output.status == 64)
    #expect(output.errorLines.count == 1)
    #expect(output.standardError.hasPrefix("stockroom: "))
    #expect(output.standardError.contains(message))
    #expect(output.standardOutput == "")
  }

  @Test(
    "An argument that is not UTF-8 is refused, and no other file is written",
    arguments: [
      ["bench", "--html"], ["bench", "--write-results"], ["bench", "--baseline"], ["bench", "--directory"],
      ["compare", "--directory"], ["conformance", "--engine", "memory", "--rule", "R1", "--resume"],
      ["conformance", "--write-matrix"], ["serve", "checks"], [],
    ])
  func encoding(arguments: [String]) async throws {
    try await withTemporaryDirectory { directory in
      let output = try await CommandLineTool.run(
        arguments, by: #"cd '\#(directory.path)' && "$@" "$(printf 'a\377.md')""#)
      #expect(output.status == 64)
      #expect(output.errorLines.count == 1)
      #expect(output.standardError.contains("Argument \(arguments.count + 1) is not UTF-8: a"))
      #expect(output.standardOutput == "")
      #expect(try contents(of: directory) == [])
    }
  }

  @Test(
    "The error about an argument that is not UTF-8 shows no password",
    arguments: [
      #"postgresql://u:se\\cr\377et@h/d"#, #"postgresql://u:se\\cret@h/\377"#,
      #"host=h\377 password=se\\\\cr\377et"#,
    ])
  func encodingOfPassword(format: String) async throws {
    for option in [["count"], ["bench", "--postgresql"]] {
      let output = try await CommandLineTool.run(option, by: #""$@" "$(printf '\#(format)')""#)
      #expect(output.status == 64)
      #expect(output.standardError.contains("Argument \(option.count + 1) is not UTF-8: "))
      #expect(output.standardError.contains("***"))
      #expect(!output.standardError.contains("se\\"), "\(output.standardError)")
    }
  }

  #if os(Linux)
    // On macOS no directory can have such a name.
    @Test("In a directory whose path is not UTF-8 nothing is written beside it, and help is shown")
    func currentDirectoryEncoding() async throws {
      try await withTemporaryDirectory { directory in
        func run(_ arguments: String...) async throws -> CommandLineTool.Output {
          try await CommandLineTool.run(
            arguments,
            by: #"""
              cd '\#(directory.path)'; name=$(printf 'a\377'); mkdir "$name"; cd "$name"
              "$@"; status=$?; cd ..; rmdir "$name"; exit $status
              """#)
        }
        let output = try await run("put", "sqlite:notes", "key", "--value", "1", "--create")
        #expect(output.status == 1)
        #expect(output.errorLines.count == 1)
        #expect(output.standardError.contains("The path of the current directory is not UTF-8: "))
        #expect(try contents(of: directory) == [])
        #expect(try await run("--help").status == 0)
      }
    }
  #endif

  @Test(
    "A directory that cannot be created causes one line with path and cause, and status 1",
    arguments: [
      ["compare"], ["conformance"], ["bench", "--engine", "memory"],
    ])
  func unusableDirectory(arguments: [String]) async throws {
    let output = try await CommandLineTool.run(arguments + ["--directory", "/dev/null/x"])
    #expect(output.status == 1)
    #expect(output.errorLines.count == 1)
    #expect(output.standardError.hasPrefix("stockroom: io: Creating the directory /dev/null/x/"))
    #expect(output.standardError.contains("Not a directory"))
    #expect(output.standardOutput == "")
  }
}
