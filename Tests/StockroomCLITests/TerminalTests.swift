import Foundation
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
  /// A pseudo-terminal.
  private struct Terminal {
    let controller: FileHandle
    let terminal: FileHandle

    init() throws {
      var descriptors: (controller: Int32, terminal: Int32) = (-1, -1)
      try #require(openpty(&descriptors.controller, &descriptors.terminal, nil, nil, nil) == 0)
      controller = FileHandle(fileDescriptor: descriptors.controller, closeOnDealloc: true)
      terminal = FileHandle(fileDescriptor: descriptors.terminal, closeOnDealloc: true)
    }
  }

  @Test("On a terminal there is progress; Ctrl-C and SIGTERM clean up", arguments: [SIGINT, SIGTERM])
  func interruption(signal: Int32) async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      let process = Process()
      process.executableURL = CommandLineTool.url
      process.arguments = [
        "bench", "--engine", "sqlite", "--engine", "leveldb", "--entries", "100", "--repetitions", "1000",
        "--directory", directory.path(),
      ]
      process.standardOutput = FileHandle.nullDevice
      process.standardError = terminal.terminal
      try process.run()

      var seen = ""
      while !seen.contains("repetition 1 of 1000: ") {
        seen += String(decoding: terminal.controller.availableData, as: UTF8.self)
      }
      #expect(try contents(of: directory).count == 1)
      #expect(kill(process.processIdentifier, signal) == 0)
      process.waitUntilExit()

      #expect(process.terminationReason == .exit)
      #expect(process.terminationStatus == 128 + signal)
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("The results of checks are printed even if the benchmark after them is interrupted")
  func interruptedComparison() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      let file = directory.appending(path: "out")
      try Data().write(to: file)
      let process = Process()
      process.executableURL = CommandLineTool.url
      process.arguments = [
        "compare", "--engine", "memory", "--format", "json", "--entries", "100", "--repetitions", "1000",
        "--directory", directory.path(),
      ]
      process.standardOutput = try FileHandle(forWritingTo: file)
      process.standardError = terminal.terminal
      try process.run()
      var seen = ""
      while !seen.contains("repetition 1 of 1000: ") {
        seen += String(decoding: terminal.controller.availableData, as: UTF8.self)
      }
      #expect(kill(process.processIdentifier, SIGINT) == 0)
      process.waitUntilExit()
      #expect(process.terminationStatus == 128 + SIGINT)
      let printed = try JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any]
      #expect(printed?["conformance"] != nil)
      #expect(printed?["benchmark"] == nil)
    }
  }

  @Test("A command that is blocked cleans up and exits at a signal")
  func hanging() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      // A full pipe that is not read: writing to it waits forever.
      let pipe = Pipe()
      let descriptor = pipe.fileHandleForWriting.fileDescriptor
      try #require(fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0)
      let page = [UInt8](repeating: 32, count: 4_096)
      while write(descriptor, page, page.count) > 0 {}
      try #require(fcntl(descriptor, F_SETFL, 0) == 0)

      let process = Process()
      process.executableURL = CommandLineTool.url
      process.arguments = [
        "conformance", "--engine", "memory", "--rule", "V1", "--directory", directory.path(),
      ]
      process.standardOutput = pipe
      process.standardError = terminal.terminal
      try process.run()
      var seen = ""
      while !seen.hasSuffix("\r\u{1B}[K") || !seen.contains("check ") {
        seen += String(decoding: terminal.controller.availableData, as: UTF8.self)
      }
      #expect(kill(process.processIdentifier, SIGINT) == 0)
      process.waitUntilExit()
      #expect(process.terminationReason == .exit)
      #expect(process.terminationStatus == 128 + SIGINT)
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("On a terminal a run of checks shows the current check and its time")
  func checks() async throws {
    let terminal = try Terminal()
    let process = Process()
    process.executableURL = CommandLineTool.url
    process.arguments = ["conformance", "--engine", "memory", "--rule", "V1"]
    process.standardOutput = FileHandle.nullDevice
    process.standardError = terminal.terminal
    try await process.runToEnd()
    #expect(process.terminationStatus == 0)
    let seen = String(decoding: terminal.controller.availableData, as: UTF8.self)
    #expect(seen.contains(/\r\u{1B}\[KMemory, check 1 of \d+: values\.[a-z-]+\r\u{1B}\[K/))
    #expect(seen.hasSuffix("\r\u{1B}[K"))

    func line(_ time: Duration) -> String {
      CheckProgressLine.text("A", number: 2, of: 9, check: "x", for: time)
    }
    #expect(line(.milliseconds(999)) == "A, check 2 of 9: x")
    #expect(line(.milliseconds(59_999)) == "A, check 2 of 9, 59 s: x")
    #expect(line(.seconds(3_725)) == "A, check 2 of 9, 62 min 5 s: x")
  }

  @Test("A closed output pipe ends the command without a message")
  func brokenPipe() async throws {
    try await withTemporaryDirectory { directory in
      let pipe = Pipe()
      try pipe.fileHandleForReading.close()
      let output = try await CommandLineTool.run(
        [
          "bench", "--engine", "memory", "--entries", "10", "--workload", "count", "--directory",
          directory.path(),
        ],
        output: pipe.fileHandleForWriting)
      #expect(output.status == 128 + SIGPIPE)
      #expect(output.standardError == "")
      #expect(try contents(of: directory) == [])
    }
  }

  #if os(Linux)
    @Test("Results that cannot be written are a failure")
    func fullDisk() async throws {
      let full = try #require(FileHandle(forWritingAtPath: "/dev/full"))
      let output = try await CommandLineTool.run(["conformance", "--list"], output: full)
      #expect(output.status == 1)
      #expect(
        output.standardError
          == "stockroom: diskFull: Writing to standard output failed (No space left on device, errno 28)\n")
    }
  #endif
}
