import Foundation
import StockroomCore
import Testing

@testable import ConformanceKit
@testable import StockroomCLI

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

@Suite("Standard input") struct StandardInputTests {
  @Test(
    "All of it is read up to a limit, beyond which it is too large", arguments: [0, 1, 10, 70_000, 200_000])
  func limit(count: Int) async throws {
    try await withTemporaryDirectory { directory in
      let url = directory.appending(path: "input")
      let value = Data((0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) })
      try value.write(to: url)
      func read(limit: Int) throws -> Data {
        let file = try FileHandle(forReadingFrom: url)
        defer { try? file.close() }
        return try readToEnd(of: file.fileDescriptor, named: "a file", limit: limit)
      }
      #expect(try read(limit: count) == value)
      #expect(try read(limit: count + 1) == value)
      #expect(try read(limit: 1 << 40) == value)
      guard count > 0 else { return }
      let error = #expect(throws: StorageError.self) { try read(limit: count - 1) }
      #expect(error?.code == .valueTooLarge)
    }
  }

  @Test("A pipe that does not block is read to its end")
  func nonblockingPipe() async throws {
    let pipe = Pipe()
    let descriptor = pipe.fileHandleForReading.fileDescriptor
    try #require(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) == 0)
    let reading = Task {
      try await DedicatedThread.runOnNewThread { _ in
        try readToEnd(of: descriptor, named: "a pipe", limit: 1_000)
      }
    }
    for byte in UInt8(0)..<100 {
      try pipe.fileHandleForWriting.write(contentsOf: Data([byte]))
      // Waits until the pipe is empty, so that the reader finds it empty often. Bounded, so that a reader that
      // has stopped is detected at the end.
      for _ in 0..<10_000 {
        var unread = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        if poll(&unread, 1, 0) == 0 { break }
        await Task.yield()
      }
    }
    try pipe.fileHandleForWriting.close()
    #expect(try await reading.value == Data(UInt8(0)..<100))
  }

  @Test("A value and an archive may come from a pipe that has a path")
  func namedPipes() async throws {
    try await withTemporaryDirectory { directory in
      let (place, copy) = (
        DataPlace("sqlite", in: directory), DataPlace("sqlite", in: directory, named: "copy")
      )
      let (pipe, archive) = (
        directory.appending(path: "pipe").path, directory.appending(path: "archive").path
      )
      try #require(mkfifo(pipe, 0o600) == 0)
      /// A script that runs the command while the program writes to the pipe.
      func writing(_ program: String) -> String {
        "\(program) > '\(pipe)' 2>&1 & \"$@\"; status=$?; kill $! 2>/dev/null; exit $status"
      }
      try await place.run(
        "put", "--create", "k", "--file", "/dev/stdin", by: #"printf 'a value' | "$@""#)
      #expect(try await place.run("get", "k").standardOutput == "a value")
      try await place.run("put", "k", "--file", pipe, by: writing("printf 'another value'"))
      #expect(try await place.run("get", "k").standardOutput == "another value")

      try await place.run("dump", "--to", archive)
      let restored = try await CommandLineTool.run(
        ["restore", pipe, "--to", copy.url], by: writing("cat '\(archive)'"))
      #expect(restored.status == 0, "\(restored.standardError)")
      #expect(try await copy.run("get", "k").standardOutput == "another value")
      let other = try await CommandLineTool.run(
        ["restore", pipe, "--to", copy.url, "--merge"], by: writing("echo something else"))
      #expect(other.status == 1)
      #expect(other.errorLines.count == 1)
      #expect(other.standardError.contains("\(pipe): "))
    }
  }

  @Test("Files that are read and written again are none that can be read once only")
  func pipeAsFile() async throws {
    try await withTemporaryDirectory { directory in
      let pipe = directory.appending(path: "pipe").path
      try #require(mkfifo(pipe, 0o600) == 0)
      for option in ["--resume", "--write-matrix"] {
        let output = try await CommandLineTool.run("conformance", "--engine", "memory", option, pipe)
        #expect(output.status == 1)
        #expect(
          output.standardError == "stockroom: unsupported: \(pipe) is a pipe or a device, and not a file.\n")
      }
    }
  }

  #if os(Linux)
    @Test(
      "A value that does not fit into memory is an error of one line, and nothing is written",
      .disabled(if: System.hasThreadSanitizer))
    func endless() async throws {
      try await withTemporaryDirectory { directory in
        let place = DataPlace("sqlite", in: directory)
        try await place.run("put", "--create", "k", "--value", "1")
        let output = try await CommandLineTool.run(
          ["put", place.url, "k"], by: #"ulimit -v 1500000; exec "$@" < /dev/zero"#)
        #expect(output.status == 1)
        #expect(output.errorLines.count == 1)
        #expect(output.standardError.hasPrefix("stockroom: io: Reading standard input failed after "))
        #expect(try await place.run("get", "k").standardOutput == "1")
      }
    }
  #endif
}
