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
      try await DedicatedThread.runApart { _ in
        try readToEnd(of: descriptor, named: "a pipe", limit: 1_000)
      }
    }
    for byte in UInt8(0)..<100 {
      try pipe.fileHandleForWriting.write(contentsOf: Data([byte]))
      // So that it is empty again and again. Who has stopped reading is found out at the end.
      for _ in 0..<10_000 {
        var unread = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        if poll(&unread, 1, 0) == 0 { break }
        await Task.yield()
      }
    }
    try pipe.fileHandleForWriting.close()
    #expect(try await reading.value == Data(UInt8(0)..<100))
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
