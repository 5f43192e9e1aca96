import BenchmarkKit
import Foundation
import Testing

@testable import StockroomCLI

@Suite("The page of results") struct ResultsPageTests {
  private static let small = [
    "bench", "--engine", "memory", "--engine", "sqlite", "--engine", "lmdb", "--entries", "50",
    "--repetitions",
    "2", "--workload", "read-one", "--workload", "write-one", "--durability", "process", "--seed", "4",
  ]

  @Test("The command writes the page, the chart and the summary")
  func written() async throws {
    try await withTemporaryDirectory { directory in
      let (page, text) = (directory.appending(path: "My page.md"), directory.appending(path: "text.md"))
      let (head, tail) = ("before\n\(MarkedSection.results.begin)\n", "\(MarkedSection.results.end)\nafter")
      try Data((head + tail).utf8).write(to: text)
      let output = try await CommandLineTool.run(
        Self.small + [
          "--directory", directory.path(), "--write-results", page.path(percentEncoded: false),
          "--write-summary",
          text.path(),
        ])
      #expect(output.status == 0 && output.standardError == "")
      #expect(output.lines.contains { $0.hasPrefix("workload ") })
      #expect(try contents(of: directory).sorted() == ["My page.md", "My page.svg", "text.md"])

      let written = try String(contentsOf: page, encoding: .utf8)
      let short = try #require(MarkedSection.results.content(of: written))
      #expect(try String(contentsOf: text, encoding: .utf8) == head + short + "\n" + tail)
      #expect(short.hasPrefix("![Operations per second, workload by workload](My%20page.svg)\n"))
      #expect(short.contains("| workload | Memory | SQLite | LMDB |"))
      // Memory is the fastest, but keeps nothing.
      #expect(short.contains(#/\| read-one \| [0-9.]+ .s \|/#))
      #expect(short.contains("In bold: the fastest without Memory;"))
      #expect(written.contains("stockroom bench --engine memory --engine sqlite"))
      #expect(written.contains("| seed | 4 |"))
      #expect(written.contains("| durability | process |"))
      #expect(
        written.contains(
          #/\| software \| Stockroom [0-9.]+, SQLite 3[0-9.]+, LMDB [0-9.]+, LevelDB [0-9.]+ \|/#))
      let chart = try String(contentsOf: directory.appending(path: "My page.svg"), encoding: .utf8)
      #expect(chart.hasPrefix("<svg xmlns="))
    }
  }

  /// What cannot be written, and what is said of it.
  private static let unwritable: [([String], Int32, String)] = [
    (
      ["--write-results", "/nowhere/page.md"], 1,
      "io: Writing /nowhere/page.md failed (No such file or directory"
    ),
    (
      ["--html", "/nowhere/page.html"], 1, "io: Writing /nowhere/page.html failed (No such file or directory"
    ),
    (["--html", "/tmp"], 1, "io: Writing /tmp failed (Is a directory"),
    (
      ["--write-results", "DIR/a.md", "--write-summary", "DIR/b.md"], 1,
      "b.md failed (No such file or directory"
    ),
    (
      ["--write-results", "DIR/a.md", "--write-summary", "DIR/unmarked.md"], 64,
      "unmarked.md needs a line <!-- results"
    ),
  ]

  @Test("A file that cannot be written is reported before anything is measured", arguments: unwritable)
  func early(arguments: [String], status: Int32, message: String) async throws {
    try await withTemporaryDirectory { directory in
      try Data("unmarked".utf8).write(to: directory.appending(path: "unmarked.md"))
      // So many repetitions would take hours.
      let output = try await CommandLineTool.run(
        ["bench", "--repetitions", "1000", "--entries", "100000"]
          + arguments.map { $0.replacing("DIR/", with: directory.path()) })
      #expect(output.status == status)
      #expect(output.errorLines.count == 1)
      #expect(output.standardError.contains(message))
      #expect(output.standardOutput == "")
      #expect(try contents(of: directory) == ["unmarked.md"])
    }
  }
}
