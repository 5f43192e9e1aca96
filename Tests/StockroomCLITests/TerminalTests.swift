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

@Suite("The surroundings") struct TerminalTests {
  /// Both ends of a terminal that no person looks at.
  private struct Terminal {
    let ours: FileHandle
    let theirs: FileHandle

    init() throws {
      var descriptors: (ours: Int32, theirs: Int32) = (-1, -1)
      try #require(openpty(&descriptors.ours, &descriptors.theirs, nil, nil, nil) == 0)
      ours = FileHandle(fileDescriptor: descriptors.ours, closeOnDealloc: true)
      theirs = FileHandle(fileDescriptor: descriptors.theirs, closeOnDealloc: true)
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
      process.standardError = terminal.theirs
      try process.run()

      var seen = ""
      while !seen.contains("repetition 1 of 1000: ") {
        seen += String(decoding: terminal.ours.availableData, as: UTF8.self)
      }
      #expect(try contents(of: directory).count == 1)
      #expect(kill(process.processIdentifier, signal) == 0)
      process.waitUntilExit()

      #expect(process.terminationReason == .exit)
      #expect(process.terminationStatus == 128 + signal)
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("The results of checks are printed even if the benchmark after them does not end")
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
      process.standardError = terminal.theirs
      try process.run()
      var seen = ""
      while !seen.contains("repetition 1 of 1000: ") {
        seen += String(decoding: terminal.ours.availableData, as: UTF8.self)
      }
      #expect(kill(process.processIdentifier, SIGINT) == 0)
      process.waitUntilExit()
      #expect(process.terminationStatus == 128 + SIGINT)
      let printed = try JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any]
      #expect(printed?["conformance"] != nil)
      #expect(printed?["benchmark"] == nil)
    }
  }

  @Test("A command that cannot go on cleans up and ends at a signal all the same")
  func hanging() async throws {
    try await withTemporaryDirectory { directory in
      let terminal = try Terminal()
      // A pipe that is full and that nobody reads: to write to it would wait for ever.
      let pipe = Pipe()
      let descriptor = pipe.fileHandleForWriting.fileDescriptor
      try #require(fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0)
      let page = [UInt8](repeating: 32, count: 4_096)
      while write(descriptor, page, page.count) > 0 {}
      try #require(fcntl(descriptor, F_SETFL, 0) == 0)

      let process = Process()
      process.executableURL = CommandLineTool.url
      process.arguments = [
        "compare", "--engine", "memory", "--entries", "10", "--directory", directory.path(),
      ]
      process.standardOutput = pipe
      process.standardError = terminal.theirs
      try process.run()
      var seen = ""
      while !seen.hasSuffix("\r\u{1B}[K") || !seen.contains("check ") {
        seen += String(decoding: terminal.ours.availableData, as: UTF8.self)
      }
      #expect(kill(process.processIdentifier, SIGINT) == 0)
      process.waitUntilExit()
      #expect(process.terminationReason == .exit)
      #expect(process.terminationStatus == 128 + SIGINT)
      #expect(try contents(of: directory) == [])
    }
  }

  @Test("On a terminal a run of checks says which it is making, and for how long")
  func checks() async throws {
    let terminal = try Terminal()
    let process = Process()
    process.executableURL = CommandLineTool.url
    process.arguments = ["conformance", "--engine", "memory", "--rule", "V1"]
    process.standardOutput = FileHandle.nullDevice
    process.standardError = terminal.theirs
    try await process.runToEnd()
    #expect(process.terminationStatus == 0)
    let seen = String(decoding: terminal.ours.availableData, as: UTF8.self)
    #expect(seen.contains(/\r\u{1B}\[KMemory, check 1 of \d+: values\.[a-z-]+\r\u{1B}\[K/))
    #expect(seen.hasSuffix("\r\u{1B}[K"))

    func line(_ time: Duration) -> String {
      CheckProgressLine.text("A", number: 2, of: 9, check: "x", for: time)
    }
    #expect(line(.milliseconds(999)) == "A, check 2 of 9: x")
    #expect(line(.milliseconds(59_999)) == "A, check 2 of 9, 59 s: x")
    #expect(line(.seconds(3_725)) == "A, check 2 of 9, 62 min 5 s: x")
  }

  @Test("A reader that goes away ends the command without a word")
  func brokenPipe() async throws {
    try await withTemporaryDirectory { directory in
      let pipe = Pipe()
      try pipe.fileHandleForReading.close()
      let output = try await CommandLineTool.run(
        ["compare", "--engine", "memory", "--entries", "10", "--directory", directory.path()],
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
