import BenchmarkKit
import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import StockroomMemory
import Testing

@testable import StockroomCLI

@Suite("Results") struct ResultsTests {
  private let small = ["--entries", "100", "--value-size", "50", "--repetitions", "2"]

  @Test("Some checks can be made alone")
  func selectedChecks() async throws {
    let list = try await CommandLineTool.run("conformance", "--list", "--rule", "k1", "--rule", "V1")
    #expect(list.status == 0)
    #expect(list.lines.allSatisfy { $0.hasPrefix("K1  ") || $0.hasPrefix("V1  ") })
    let check = try #require(list.lines.first?.split(separator: " ").dropFirst().first)

    let output = try await CommandLineTool.run(
      "conformance", "--check", String(check), "--engine", "sqlite", "--engine", "memory", "--format", "json")
    #expect(output.status == 0)
    let object = try #require(try jsonObject(output))
    // A subset of the checks does not verify the contract.
    #expect(object["conforms"] is NSNull)
    let engines = try #require(object["engines"] as? [[String: Any]])
    #expect(engines.map { $0["name"] as? String } == ["Memory", "SQLite"])
    #expect(engines.map { $0["passed"] as? Int } == [1, 1])
    #expect((engines[1]["checks"] as? [[String: Any]])?.first?["check"] as? String == String(check))
  }

  @Test("The list of checks is JSON and Markdown as well")
  func listFormats() async throws {
    let json = try await CommandLineTool.run("conformance", "--list", "--rule", "K1", "--format", "json")
    #expect((try #require(try jsonObject(json))["checks"] as? [[String: Any]])?.isEmpty == false)
    let markdown = try await CommandLineTool.run(
      "conformance", "--list", "--rule", "K1", "--format", "markdown")
    #expect(markdown.lines.allSatisfy { $0.hasPrefix("- K1 `") })
  }

  @Test("--fail-if-slower fails if the baseline has no measurement in common with the run")
  func baselineOfSomethingElse() async throws {
    let file = FileManager.default.temporaryDirectory.appending(path: "baseline-\(UUID().uuidString).json")
    defer { try? FileManager.default.removeItem(at: file) }
    func bench(_ more: String...) async throws -> CommandLineTool.Output {
      try await CommandLineTool.run(
        ["bench", "--engine", "memory", "--workload", "count", "--repetitions", "2"] + more)
    }
    let before = try await bench("--entries", "100", "--format", "json")
    try Data(before.standardOutput.utf8).write(to: file)

    let other = try await bench("--entries", "200", "--baseline", file.path(), "--fail-if-slower")
    #expect(other.status == 1)
    #expect(other.standardOutput.contains("no measurement in common"))
    let same = try await bench("--entries", "100", "--baseline", file.path())
    #expect(same.status == 0)
    #expect(!same.standardOutput.contains("no measurement in common"))

    // Control characters in a name from a file are escaped.
    let hostile = before.standardOutput.replacing("\"Memory\"", with: #""\u001b[2JMemory""#)
    try Data(hostile.utf8).write(to: file)
    let shown = try await bench("--entries", "100", "--baseline", file.path())
    #expect(shown.standardOutput.contains(#"Not comparable: Memory, count; \u{1B}[2JMemory, count."#))
    #expect(!shown.standardOutput.contains("\u{1B}"))
  }

  @Test("A baseline that cannot be read, or is something else, is an error of one line with status 1")
  func unusableBaseline() async throws {
    try await withTemporaryDirectory { directory in
      let foreign = directory.appending(path: "foreign.json")
      try Data("{}".utf8).write(to: foreign)
      for (path, message) in [
        ("/nowhere/report.json", "io: Reading /nowhere/report.json failed (No such file or directory"),
        (foreign.path, "unsupported: \(foreign.path) is not a report of `stockroom bench --format json`."),
      ] {
        let output = try await CommandLineTool.run("bench", "--engine", "memory", "--baseline", path)
        #expect(output.status == 1)
        #expect(output.errorLines.count == 1)
        #expect(output.standardError.hasPrefix("stockroom: \(message)"), "\(output.standardError)")
        #expect(output.standardOutput == "")
      }
    }
  }

  @Test("A benchmark as JSON is a report that can be read back")
  func benchmarkJSON() async throws {
    let output = try await CommandLineTool.run(
      ["bench", "--engine", "memory", "--engine", "lmdb", "--seed", "9", "--durability", "process"] + small
        + ["--workload", "scan", "--workload", "read-one", "--format", "json"])
    #expect(output.status == 0)
    let report = try BenchmarkReport(json: Data(output.standardOutput.utf8))
    #expect(report.subjects == ["Memory", "LMDB"])
    #expect(report.workloads.map(\.name) == ["read-one", "scan"])
    #expect(report.results.allSatisfy { $0.samples.count == 2 })
    #expect(report.entries == 100 && report.valueSize == 50 && report.seed == 9)
    #expect(report.durability == "process")
  }

  @Test("A benchmark of all engines prints the tables only")
  func benchmarkText() async throws {
    try await withTemporaryDirectory { directory in
      let output = try await CommandLineTool.run(["bench", "--directory", directory.path()] + small)
      #expect(output.status == 0)
      #expect(output.standardError == "")
      #expect(!output.standardOutput.contains { $0 == "\u{1B}" || $0 == "\r" })
      let header = try #require(output.lines.first { $0.hasPrefix("workload") })
      #expect(header.split(separator: " ").dropFirst().map(String.init) == EngineCatalog.all.map(\.title))
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("A comparison prints both tables, of the checks that were chosen, too")
  func comparison() async throws {
    try await withTemporaryDirectory { directory in
      let output = try await CommandLineTool.run(
        ["compare", "--engine", "memory", "--rule", "K1", "--rule", "W1", "--directory", directory.path()]
          + small)
      #expect(output.status == 0)
      #expect(output.standardError == "")
      #expect(try contents(of: directory) == [])
      #expect(output.lines.contains { $0.hasPrefix("rule ") })
      #expect(output.lines.contains { $0.wholeMatch(of: /K1 +\d+/) != nil })
      #expect(
        output.lines.contains {
          $0.hasPrefix("Passed ") && $0.contains("does not show whether the contract is followed")
        })
      #expect(output.lines.contains { $0.hasPrefix("workload ") })
    }
  }

  @Test("A comparison has both results in every format", arguments: OutputFormat.allCases)
  func comparisonFormats(format: OutputFormat) async throws {
    try await withTemporaryDirectory { directory in
      let engines = try EngineOptions.parse(["--engine", "memory"])
      let suites = engines.suites(of: try engines.engines, in: directory)
      let conformance = try await ConformanceRun(suites, rules: [.k1]).results()
      let benchmark = try await BenchmarkRunner(
        configuration: BenchmarkConfiguration(
          entries: 10, repetitions: 1, workloads: [Workload.standard[0]], directory: directory)
      ).run([BenchmarkSubject("Memory") { _ in MemoryStorageEngine() }])

      var output = CompareCommand.conformanceText(conformance, format)
      output += try CompareCommand.benchmarkText(benchmark, after: conformance, format)
      switch format {
      case .text:
        #expect(output.hasPrefix("CONFORMANCE\n") && output.contains("\nSPEED\n"))
        #expect(output.contains("\nworkload "))
      case .markdown:
        #expect(output.contains("| rule | what it promises | Memory |"))
        #expect(output.contains("| workload | Memory |"))
      case .json:
        let object = try JSONSerialization.jsonObject(with: Data(output.utf8)) as? [String: Any]
        #expect(object?["conformance"] is [String: Any])
        #expect(object?["benchmark"] is [String: Any])
      }
    }
  }

  @Test("A word of a command line is quoted, whatever follows a quotation mark in it")
  func quotedWords() {
    #expect("a-b/c_d.e".quotedForShell == "a-b/c_d.e")
    #expect("a place's".quotedForShell == #"'a place'\''s'"#)
    #expect(Array("'\u{301}$(x)".quotedForShell.utf8) == Array((#"''\''"# + "\u{301}$(x)'").utf8))
  }

  @Test("Each failure is printed with the command that reproduces it")
  func reproduction() async throws {
    func suite(_ engine: String) -> ConformanceSuite {
      EngineCatalog.Entry("broken", engine, []) { _, _ in throw StorageError(.io, "No.") }
        .suite(in: FileManager.default.temporaryDirectory)
    }
    let check = try #require(suite("LMDB").checks.first)
    func text(_ arguments: [String], budget: [String], of engine: String = "LMDB") async throws -> String {
      let reproduction = try EngineOptions.parse(arguments).reproduction(try BudgetOptions.parse(budget))
      return try await ConformanceRun([suite(engine)], checks: [check.id]).results(reproduction: reproduction)
        .text
    }
    let start =
      "\n  Reproduce: stockroom conformance --engine lmdb --check \(check.id) --level standard --seed 1"
    #expect(try await text([], budget: []).contains(start + "\n"))
    let surroundings = ["--durability", "process", "--directory", "/a place's"]
    let budget = [
      "--operations", "9", "--minutes", "2", "--kills", "3", "--power-cuts", "all", "--corruptions", "4",
    ]
    #expect(
      try await text(surroundings, budget: ["--seed", "1"] + budget).contains(
        start + " " + budget.joined(separator: " ") + #" --durability process --directory '/a place'\''s'"#
          + "\n"))
    #expect(
      try await text(["--postgresql", "host=h password='the secret'"], budget: [], of: "PostgreSQL").contains(
        start.replacing("lmdb", with: "postgresql") + " --postgresql 'host=h password=***'\n"))
    // LMDB does not use the option, so the command would reject it.
    #expect(try await text(["--postgresql", "host=h"], budget: []).contains(start + "\n"))
    // The seed of the failed suite alone reproduces the failure, also if a search with --minutes found it.
    #expect(try await text([], budget: ["--seed", "5", "--minutes", "2"]).contains(start + "\n"))
  }

  @Test("JUnit XML has a suite for each engine and says the same as the exit status")
  func junit() async throws {
    let output = try await CommandLineTool.run(
      "conformance", "--engine", "memory", "--engine", "lmdb", "--rule", "V1", "--format", "junit")
    #expect(output.status == 0)
    #expect(output.lines.first == #"<?xml version="1.0" encoding="UTF-8"?>"#)
    #expect(output.lines.contains { $0.hasPrefix(#"  <testsuite name="Memory" tests=""#) })
    #expect(output.lines.contains { $0.hasPrefix(#"  <testsuite name="LMDB" tests=""#) })
    #expect(output.lines.last == "</testsuites>")
  }

  @Test("The budget reaches the checks")
  func budget() async throws {
    let output = try await CommandLineTool.run(
      [
        "conformance", "--engine", "memory", "--rule", "V1", "--format", "json", "--operations", "11",
        "--minutes", "0.5", "--kills", "12", "--power-cuts", "13", "--corruptions", "14", "--seed", "15",
      ])
    #expect(output.status == 0)
    let engines = try #require(try jsonObject(output)?["engines"] as? [[String: Any]])
    var budget = try #require(engines.first?["budget"] as? [String: Any])
    #expect(budget.removeValue(forKey: "level") as? String == "standard")
    #expect(
      budget as? [String: Double] == [
        "operations": 11, "seconds": 30, "kills": 12, "powerCuts": 13, "corruptions": 14, "seed": 15,
      ])
  }

  @Test("A failed check makes the status 1")
  func failureStatus() async throws {
    // Files may not grow beyond 1 MiB here, so a value of 64 MiB cannot be written.
    let script = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" conformance --engine files --rule V2"
    let output = try await CommandLineTool.run(
      ["-c", script, CommandLineTool.url.path()], executable: URL(filePath: "/bin/sh"))
    #expect(output.status == 1)
    #expect(output.standardError == "")
    #expect(output.lines.contains("✗ Files, values.64-mebibytes"))
    #expect(output.lines.last?.hasPrefix("Files: contract broken. ") == true)
  }

  private func jsonObject(_ output: CommandLineTool.Output) throws -> [String: Any]? {
    try JSONSerialization.jsonObject(with: Data(output.standardOutput.utf8)) as? [String: Any]
  }
}
