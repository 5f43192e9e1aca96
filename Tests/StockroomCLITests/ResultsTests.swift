import BenchmarkKit
import Foundation
import StockroomCore
import StockroomMemory
import Testing

@testable import StockroomCLI

@Suite("Results") struct ResultsTests {
  private let small = ["--entries", "100", "--value-size", "50", "--repetitions", "2"]

  @Test("The memory engine conforms")
  func conformance() async throws {
    let output = try await CommandLineTool.run("conformance", "--engine", "memory")
    #expect(output.status == 0)
    #expect(output.standardError == "")
    #expect(output.lines.contains { $0.wholeMatch(of: /K1 +\d+/) != nil })
    #expect(output.lines.last?.hasPrefix("Every engine keeps the contract. ") == true)
  }

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
    #expect(object["conforms"] as? Bool == true)
    let engines = try #require(object["engines"] as? [[String: Any]])
    #expect(engines.map { $0["name"] as? String } == ["memory", "sqlite"])
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

  @Test("All engines can be raced, and nothing but the tables is printed")
  func benchmarkText() async throws {
    try await withTemporaryDirectory { directory in
      let output = try await CommandLineTool.run(["bench", "--directory", directory.path()] + small)
      #expect(output.status == 0)
      #expect(output.standardError == "")
      #expect(!output.standardOutput.contains { $0 == "\u{1B}" || $0 == "\r" })
      let header = try #require(output.lines.first { $0.hasPrefix("workload") })
      #expect(header.split(separator: " ").dropFirst().map(String.init) == EngineCatalogue.all.map(\.title))
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("A comparison prints both tables", arguments: ["text", "markdown", "json"])
  func comparison(format: String) async throws {
    try await withTemporaryDirectory { directory in
      let output = try await CommandLineTool.run(
        ["compare", "--engine", "memory", "--format", format, "--directory", directory.path()] + small)
      #expect(output.status == 0)
      #expect(output.standardError == "")
      #expect(try contents(of: directory) == [])
      switch format {
      case "text":
        #expect(output.lines.contains { $0.hasPrefix("rule ") })
        #expect(output.lines.contains { $0.hasPrefix("workload ") })
      case "markdown":
        #expect(output.lines.contains("| rule | Memory |"))
        #expect(output.lines.contains("| workload | Memory |"))
      default:
        let object = try #require(try jsonObject(output))
        #expect(object["conformance"] is [String: Any])
        #expect(object["benchmark"] is [String: Any])
      }
    }
  }

  @Test("A failed check is told in a paragraph, a skipped one with its reason, and the table shows both")
  func failures() async throws {
    try await withTemporaryDirectory { directory in
      let good = EngineCatalogue.Entry("good", "Good", []) { _, _ in MemoryStorageEngine() }
      let bad = EngineCatalogue.Entry("bad", "Bad", []) { _, _ in throw StorageError(.io, "It will not open.")
      }
      let run = ConformanceRun([good, bad], durability: .full, rules: [.v1], in: directory)
      let check = try #require(run.listedChecks.first)
      let skipped = ConformanceResults.Outcome(check, .skipped("There is no such disk here."), seconds: 0)
      let found = try await run.results()
      #expect(!found.conforms)
      #expect(found.engines.map(\.failed) == [0, run.listedChecks.count])

      let results = ConformanceResults(engines: found.engines + [.init(good, [skipped])])
      let text = try results.rendered(as: .text)
      #expect(text.contains("\n✗ Bad, \(check.id)\n  Rule V1 is broken"))
      #expect(text.contains("It will not open."))
      #expect(text.contains("\n○ Good, \(check.id): There is no such disk here.\n"))
      #expect(text.contains(#/\nV1 +\d+ +✗ \d+ +○ 1\n/#))
      #expect(text.contains("\nBad: contract broken. "))
      let markdown = try results.rendered(as: .markdown)
      #expect(markdown.contains("\n- ✗ **Bad**, `\(check.id)`: Rule V1 is broken"))
      #expect(markdown.contains("\n- ○ Good, `\(check.id)`: There is no such disk here.\n"))
    }
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
