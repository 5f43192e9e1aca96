import Foundation
import StockroomKitSupport
import TestFixtures
import Testing

@testable import StockroomCLI

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

@Suite("Terminals, signals and pipes") struct TerminalTests {
  @Test(
    "On a terminal there is progress; Ctrl-C, SIGTERM and a hangup clean up",
    arguments: [[SIGINT], [SIGTERM], [SIGHUP], [SIGHUP, SIGHUP], [SIGTERM, SIGHUP]])
  func interruption(signals: [Int32]) async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      let process = try terminal.start([
        "bench", "--engine", "sqlite", "--engine", "leveldb", "--entries", "100", "--repetitions", "1000",
        "--directory", directory.path(),
      ])
      try await terminal.show(process) { $0.contains(" of 1000: ") }
      #expect(try contents(of: directory).count == 1)
      #expect(kill(process.identifier, signals[0]) == 0)
      // The system may deliver two signals in either order, and the second may be too late.
      for signal in signals.dropFirst() { kill(process.identifier, signal) }
      let end = await process.waitUntilEnd()
      #expect(signals.contains { end == .exited(status: 128 + $0) }, "\(end)")
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("The results of checks are printed even if the benchmark after them is interrupted")
  func interruptedComparison() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      let file = directory.appending(path: "out")
      let process = try terminal.start(
        [
          "compare", "--engine", "memory", "--level", "quick", "--rule", "K1", "--format", "json",
          "--entries", "100",
          "--repetitions", "1000",
          "--directory", directory.path(),
        ], output: file.path)
      try await terminal.show(process) { $0.contains(" of 1000: ") }
      #expect(kill(process.identifier, SIGINT) == 0)
      #expect(await process.waitUntilEnd() == .exited(status: 128 + SIGINT))
      let printed = try JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any]
      #expect(printed?["conformance"] != nil)
      #expect(printed?["benchmark"] == nil)
    }
  }

  @Test("The results of the checks that have ended are printed when the next one is interrupted")
  func interruptedChecks() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      let file = directory.appending(path: "out")
      let process = try terminal.start(
        [
          "conformance", "--engine", "memory", "--check", "keys.case", "--check", "model.everything",
          "--operations", "1000000", "--format", "json", "--directory", directory.path(),
        ], output: file.path)
      try await terminal.show(process) { $0.contains("check 2 of 2") }
      #expect(kill(process.identifier, SIGINT) == 0)
      try await terminal.show(process) { $0.contains("stockroom: interrupted after 1 of 2 checks") }
      #expect(await process.waitUntilEnd() == .exited(status: 128 + SIGINT))
      let results = try #require(
        JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any])
      #expect(results["conforms"] is NSNull)
      let engine = try #require((results["engines"] as? [[String: Any]])?.first)
      let checks = try #require(engine["checks"] as? [[String: Any]])
      #expect(checks.map { $0["check"] as? String } == ["keys.case"])
      #expect(checks.first?["status"] as? String == "passed")
      #expect(try contents(of: directory) == ["out"])
    }
  }

  @Test("The repetitions so far are printed when a benchmark is interrupted, and are marked as a part")
  func interruptedBenchmark() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      let file = directory.appending(path: "out")
      let process = try terminal.start(
        [
          "bench", "--engine", "memory", "--entries", "100", "--repetitions", "1000", "--directory",
          directory.path(),
        ], output: file.path)
      try await terminal.show(process) { $0.contains("repetition 2 of 1000: ") }
      #expect(kill(process.identifier, SIGINT) == 0)
      try await terminal.show(process) { $0.contains("stockroom: interrupted after ") }
      #expect(await process.waitUntilEnd() == .exited(status: 128 + SIGINT))
      let printed = try String(contentsOf: file, encoding: .utf8)
      #expect(printed.hasPrefix("Interrupted after ") && printed.contains(" of 1000 repetitions:\n"))
      #expect(printed.contains("\nworkload "))
    }
  }

  @Test("The results so far are printed even if the work hangs when it is interrupted", .ownThreads)
  func hangingWork() async throws {
    let result = await #expect(
      processExitsWith: .exitCode(128 + SIGINT), observing: [\.standardOutputContent]
    ) {
      signal(SIGINT, SIG_DFL)
      try await cancellingOnSignal {
        try await PartialOutput.printed {
          try writeToStandardOutput("so far")
        } unlessEnds: {
          kill(getpid(), SIGINT)
          while true { await Task.yield() }
        }
      }
    }
    let output = try #require(result).standardOutputContent
    #expect(String(decoding: output, as: UTF8.self).contains("so far"))
  }

  @Test("Checks in processes of their own leave nothing behind either")
  func interruptedProcesses() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      let process = try terminal.start([
        "conformance", "--engine", "sqlite", "--check", "model.everything", "--operations", "1000000",
        "--jobs", "2", "--directory", directory.path(),
      ])
      // Those of the command and of the check.
      func scratchDirectories() -> Int {
        // The check makes and removes directories while they are being listed.
        let paths = try? FileManager.default.subpathsOfDirectory(atPath: directory.path())
        return paths?.count { $0.split(separator: "/").last?.hasPrefix("stockroom-") ?? false } ?? 0
      }
      while scratchDirectories() < 2 { try await Task.sleep(for: .milliseconds(1)) }
      #expect(kill(process.identifier, SIGTERM) == 0)
      #expect(await process.waitUntilEnd() == .exited(status: 128 + SIGTERM))
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("A command that is blocked cleans up and exits at a signal")
  func hanging() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      try await withTemporaryDirectory { place in
        // A full pipe that is not read: writing to it waits forever.
        let pipe = place.appending(path: "pipe").path
        try #require(mkfifo(pipe, 0o600) == 0)
        let descriptor = open(pipe, O_RDWR | O_NONBLOCK | O_CLOEXEC)
        try #require(descriptor >= 0)
        defer { close(descriptor) }
        let page = [UInt8](repeating: 32, count: 4_096)
        while write(descriptor, page, page.count) > 0 {}

        let process = try terminal.start(
          ["conformance", "--engine", "memory", "--rule", "V1", "--directory", directory.path()], output: pipe
        )
        try await terminal.show(process) { $0.hasSuffix("\r\u{1B}[K") && $0.contains("check ") }
        #expect(kill(process.identifier, SIGINT) == 0)
        #expect(await process.waitUntilEnd() == .exited(status: 128 + SIGINT))
      }
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("On a terminal a run of checks shows the current check and its time")
  func checks() async throws {
    let terminal = try Terminal()
    let process = try terminal.start(["conformance", "--engine", "memory", "--rule", "V1"])
    try await terminal.show(process) {
      $0.contains(/\r\u{1B}\[KMemory, check 1 of \d+: values\.[a-z-]+\r\u{1B}\[K/)
        && $0.hasSuffix("\r\u{1B}[K")
    }
    #expect(await process.waitUntilEnd() == .exited(status: 0))

    func line(_ time: Duration) -> String {
      CheckProgressLine.text("A", number: 2, of: 9, check: "x", for: time)
    }
    #expect(line(.milliseconds(999)) == "A, check 2 of 9: x")
    #expect(line(.milliseconds(59_999)) == "A, check 2 of 9, 59 s: x")
    #expect(line(.seconds(3_725)) == "A, check 2 of 9, 62 min 5 s: x")
  }

  @Test("A line of progress never goes on in the next line of the terminal")
  func width() {
    func line(_ text: String, _ columns: Int) -> String {
      String(ProgressLine.beginning(of: text, columns: columns))
    }
    #expect(line("Counting sqlite:notes", 12) == "Counting sql")
    #expect(line("Counting sqlite:ノート", 19) == "Counting sqlite:ノ")
    #expect(line("Counting sqlite:ノート", 22) == "Counting sqlite:ノート")
    #expect(line("x", 0) == "")
    #expect(line("x", -1) == "")
  }

  @Test("A closed output pipe ends the command without a message")
  func brokenPipe() async throws {
    try await withTemporaryDirectory { directory in
      // The command starts when the other end has been closed.
      let output = try await CommandLineTool.run(
        [
          "bench", "--engine", "memory", "--entries", "10", "--workload", "count", "--directory",
          directory.path(),
        ],
        by: """
          place=$(mktemp -d)
          {
            while [ ! -e "$place/closed" ]; do sleep 0.01; done
            "$@"
            echo $? > "$place/status"
          } | { exec <&-; : > "$place/closed"; }
          status=$(cat "$place/status")
          rm -r "$place"
          exit "$status"
          """)
      #expect(output.status == 128 + SIGPIPE)
      #expect(output.standardError == "")
      #expect(try contents(of: directory) == [])
    }
  }

  #if os(Linux)
    @Test(
      "Results and help that cannot be written are a failure",
      arguments: [["conformance", "--list"], ["--help"], ["--version"]])
    func fullDisk(arguments: [String]) async throws {
      let output = try await CommandLineTool.run(arguments, by: #""$@" >/dev/full"#)
      #expect(output.status == 1)
      #expect(
        output.standardError
          == "stockroom: diskFull: Writing to standard output failed (No space left on device, errno 28)\n")
    }
  #endif
}
