import ConformanceKit
import Foundation
import StockroomKitSupport
import Testing

@testable import StockroomCLI

@Suite("Levels, interrupted runs and several processes") struct LevelTests {
  private func engine(_ output: CommandLineTool.Output) throws -> [String: Any] {
    let object = try JSONSerialization.jsonObject(with: Data(output.standardOutput.utf8)) as? [String: Any]
    return try #require((object?["engines"] as? [[String: Any]])?.first)
  }

  @Test("A level decides how far the checks go, and other options change that")
  func level() async throws {
    let output = try await CommandLineTool.run(
      "conformance", "--engine", "memory", "--rule", "R1", "--format", "json", "--level", "quick", "--kills",
      "7")
    #expect(output.status == 0)
    let budget = try #require(try engine(output)["budget"] as? [String: Any])
    #expect(budget["level"] as? String == "quick")
    #expect(budget["operations"] as? Int == 500)
    #expect(budget["kills"] as? Int == 7)
  }

  @Test("A check of a higher level is listed there, and asked for below it is an error that says so")
  func later() async throws {
    let check = "clock.waiting"
    let list = try await CommandLineTool.run("conformance", "--level", "exhaustive", "--list")
    #expect(list.standardOutput.contains(check))
    let output = try await CommandLineTool.run("conformance", "--check", check)
    #expect(output.status == 64)
    #expect(
      output.standardError.contains(
        "The check \(check) does not run at the level standard, only at a higher one."))
  }

  @Test("Checks in processes of their own come to the same results")
  func jobs() async throws {
    let arguments = ["conformance", "--engine", "memory", "--rule", "R1", "--rule", "V1", "--format", "json"]
    let alone = try engine(try await CommandLineTool.run(arguments))
    let output = try await CommandLineTool.run(arguments + ["--jobs", "2"])
    #expect(output.status == 0)
    let together = try engine(output)
    func results(_ engine: [String: Any]) -> [[String]] {
      (engine["checks"] as? [[String: Any]] ?? []).map {
        [$0["check"] as? String ?? "", $0["status"] as? String ?? ""]
      }
    }
    #expect(!results(alone).isEmpty)
    #expect(results(alone) == results(together))
  }

  @Test("A run goes on where another was interrupted, and not with other options")
  func resume() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "results").path
      func run(_ arguments: String...) async throws -> CommandLineTool.Output {
        try await CommandLineTool.run(
          ["conformance", "--engine", "memory", "--format", "json", "--resume", file] + arguments)
      }
      #expect(try await run("--rule", "R1").status == 0)
      var lines = try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").map(String.init)
      let count = lines.count
      try #require(count >= 4)
      // Simulates that the first check was skipped, that the record of the second follows an incomplete one, and
      // that the run ended while it wrote the last.
      lines[2] = String(lines[2].prefix(20)) + lines[2]
      lines[1] = lines[1].replacing(#""status":"passed""#, with: #""reason":"Kept.","status":"skipped""#)
      try (lines.dropLast().joined(separator: "\n") + "\n" + lines[count - 1].prefix(20)).write(
        toFile: file, atomically: true, encoding: .utf8)
      let checks = try #require(try engine(try await run("--rule", "R1"))["checks"] as? [[String: Any]])
      #expect(
        checks.map { $0["status"] as? String } == ["skipped"] + Array(repeating: "passed", count: count - 2))
      #expect(try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").count == count)

      let other = try await run("--rule", "R1", "--seed", "5")
      #expect(other.status != 0)
      #expect(other.standardError.contains("is from a run with other options."))
      #expect(other.standardError.contains("Its options: --level standard --seed 1"))
      #expect(other.standardError.contains("Those of this run: --level standard --seed 5"))
      for foreign in ["precious", "\"other", "\n"] {
        try foreign.write(toFile: file, atomically: true, encoding: .utf8)
        #expect(try await run("--rule", "R1").status != 0)
        #expect(try String(contentsOfFile: file, encoding: .utf8) == foreign)
      }
    }
  }

  @Test("A run does not go on with the results of another build")
  func resumeOfOtherBuild() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "results")
      func run() async throws -> CommandLineTool.Output {
        try await CommandLineTool.run(
          "conformance", "--engine", "memory", "--rule", "R1", "--resume", file.path)
      }
      #expect(try await run().status == 0)
      #expect(try await run().status == 0)
      // Another build would write a different first line, and nothing else differently.
      var lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map(String.init)
      var start = try JSONDecoder().decode([String: String].self, from: Data(lines[0].utf8))
      let build = try #require(start["build"])
      #expect(build.hasPrefix("Stockroom "))
      start["build"] = build + "0"
      lines[0] = String(decoding: try JSONEncoder().encode(start), as: UTF8.self)
      let other = lines.map { $0 + "\n" }.joined()
      try Data(other.utf8).write(to: file)
      let output = try await run()
      #expect(output.status == 1)
      #expect(output.errorLines.count == 1)
      #expect(
        output.standardError.contains(
          "\(file.path) is from a run of another build. Its build: \(build)0. That of this run: \(build)."))
      #expect(try String(contentsOf: file, encoding: .utf8) == other)
    }
  }

  #if os(Linux)
    // On macOS a changed program has no valid signature.
    @Test("A program that differs in its bytes only is another build")
    func differentBytes() async throws {
      try await withTemporaryDirectory { directory in
        let (program, file) = (
          directory.appending(path: "stockroom"), directory.appending(path: "results").path
        )
        // Executing a file that this process has written can fail with ETXTBSY: processes that other tests start meanwhile inherit
        // its descriptor.
        func write(_ command: String) async throws {
          let written = try await ProgramOutput(
            of: ["/bin/sh", "-c", command, CommandLineTool.url.path, program.path])
          try #require(written.isSuccess, "\(written.explanation)")
        }
        try await write(#"cp "$0" "$1""#)
        func run() async throws -> CommandLineTool.Output {
          try await CommandLineTool.run(
            ["conformance", "--engine", "memory", "--rule", "R1", "--resume", file], executable: program)
        }
        #expect(try await run().status == 0)
        try await write(#"printf '\0' >> "$1""#)
        let output = try await run()
        #expect(output.status == 1)
        #expect(output.standardError.contains("is from a run of another build."))
      }
    }
  #endif

  @Test("A check that could not run is made again when a run goes on")
  func resumeAfterError() async throws {
    try await withTemporaryDirectory { directory in
      let file = OutputFile(directory.appending(path: "results").path)
      func result(_ outcome: ConformanceOutcome) -> ConformanceReport.Result {
        ConformanceReport.Result(
          check: "\(outcome)", rule: .k1, expectation: "", outcome: outcome, seconds: 0)
      }
      let (passed, killed) = (result(.passed), result(.couldNotRun("The process was killed.")))
      let interrupted = try ResumeFile(file, build: "", settings: "")
      interrupted.add(passed, engine: "Memory")
      interrupted.add(killed, engine: "Memory")
      let resumed = try ResumeFile(file, build: "", settings: "")
      #expect(resumed.result(of: passed.check, engine: "Memory")?.outcome == .passed)
      #expect(resumed.result(of: killed.check, engine: "Memory") == nil)
      #expect(try file.read().split(separator: "\n").count == 2)
    }
  }

  @Test("Results that cannot be kept are shown, and are a failure")
  func resumeOnFullDisk() async throws {
    try await withTemporaryDirectory { directory in
      let output = try await CommandLineTool.run(
        [
          "conformance", "--engine", "memory", "--rule", "R1", "--rule", "K1", "--resume",
          directory.appending(path: "results").path,
        ], by: #"trap '' XFSZ; ulimit -f 1; exec "$@""#)
      #expect(output.status == 1)
      #expect(output.lines.contains { $0.hasPrefix("Passed ") })
      #expect(output.errorLines.count == 1)
      #expect(output.standardError.contains("The results could not be kept for --resume"))
    }
  }

  @Test("The file from which a run goes on, and the error about another one, show no password")
  func resumeWithoutPassword() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "results").path
      func run(seed: String) async throws -> CommandLineTool.Output {
        // The file is created before the connection fails.
        try await CommandLineTool.run(
          "conformance", "--engine", "postgresql", "--rule", "R1", "--seed", seed, "--resume", file,
          "--postgresql", "host=/nowhere password = 'the secret'")
      }
      let first = try await run(seed: "1")
      #expect(first.status == 1)
      #expect(first.standardError.contains("/nowhere") && !first.standardError.contains("secret"))
      let kept = try String(contentsOfFile: file, encoding: .utf8)
      #expect(kept.contains("host=/nowhere password = ***"))
      #expect(!kept.contains("secret"))
      let other = try await run(seed: "2")
      #expect(other.status == 1)
      #expect(other.standardError.contains("is from a run with other options"))
      #expect(other.standardError.contains("password = ***"))
      #expect(!other.standardError.contains("secret"))
    }
  }
}
