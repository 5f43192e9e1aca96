import BenchmarkKit
import Foundation
import StockroomCore
import StockroomMemory
import Testing

@testable import StockroomCLI

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

@Suite("Files that a command writes") struct OutputFileTests {
  @Test("What a symbolic link leads to is written, and the link stays")
  func link() async throws {
    try await withTemporaryDirectory { directory in
      let (file, link) = (directory.appending(path: "report.md"), directory.appending(path: "link.md"))
      try Data("old".utf8).write(to: file)
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: file)
      let output = OutputFile(link.path)
      try output.check()
      try output.write("new")
      #expect(try String(contentsOf: file, encoding: .utf8) == "new")
      #expect(try kind(of: link.path) == .typeSymbolicLink)
      #expect(try contents(of: directory).sorted() == ["link.md", "report.md"])
    }
  }

  @Test("A pipe is written to, and not replaced")
  func namedPipe() async throws {
    try await withTemporaryDirectory { directory in
      let path = directory.appending(path: "pipe").path
      try #require(mkfifo(path, 0o600) == 0)
      let reading = open(path, O_RDONLY | O_NONBLOCK)
      try #require(reading >= 0)
      defer { close(reading) }
      let output = OutputFile(path)
      try output.check()
      try output.write("new")
      var bytes = [UInt8](repeating: 0, count: 8)
      let count = read(reading, &bytes, bytes.count)
      #expect(String(decoding: bytes.prefix(max(0, count)), as: UTF8.self) == "new")
      #expect(try kind(of: path) != .typeRegular)
      #expect(try contents(of: directory) == ["pipe"])
    }
  }

  @Test("What would end a link in Markdown, or make it another one, is escaped")
  func links() {
    #expect("My page.svg".asLink == "My%20page.svg")
    #expect("a) b.svg".asLink == "a%29%20b.svg")
    #expect("javascript:(1).svg".asLink == "javascript%3A%281%29.svg")
  }

  #if os(Linux)
    @Test("If one file of a report cannot be written, the others are")
    func fullDisk() async throws {
      try await withTemporaryDirectory { directory in
        let options = try ReportFileOptions.parse([
          "--html", "/dev/full", "--write-results", directory.appending(path: "page.md").path,
        ])
        let report = try await BenchmarkRunner(
          configuration: BenchmarkConfiguration(
            entries: 1, repetitions: 1, workloads: [Workload.standard[0]], directory: directory)
        ).run([BenchmarkSubject("Memory") { _ in MemoryStorageEngine() }])
        let error = #expect(throws: StorageError.self) { try options.write(report) }
        #expect(error?.code == .diskFull)
        #expect(try contents(of: directory).sorted() == ["page.md", "page.svg"])
      }
    }
  #endif

  private func kind(of path: String) throws -> FileAttributeType? {
    try FileManager.default.attributesOfItem(atPath: path)[.type] as? FileAttributeType
  }
}
