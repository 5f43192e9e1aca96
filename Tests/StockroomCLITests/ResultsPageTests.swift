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

  @Test("The command writes the page and the chart")
  func written() async throws {
    try await withTemporaryDirectory { directory in
      let page = directory.appending(path: "My page.md")
      let output = try await CommandLineTool.run(
        Self.small + [
          "--directory", directory.path(), "--write-results", page.path(percentEncoded: false),
        ])
      #expect(output.status == 0 && output.standardError == "")
      #expect(output.lines.contains { $0.hasPrefix("workload ") })
      #expect(try contents(of: directory).sorted() == ["My page.md", "My page.svg"])

      let written = try String(contentsOf: page, encoding: .utf8)
      #expect(
        written.contains(
          "## Summary\n\n![Operations per second, workload by workload](My%20page.svg)\n"))
      #expect(written.contains("| workload | Memory | SQLite | LMDB |"))
      // Memory is the fastest, but volatile, so it is not in bold.
      #expect(written.contains(#/\| read-one \| [0-9.]+ .s \|/#))
      #expect(written.contains("In bold: the fastest except Memory;"))
      #expect(written.contains("stockroom bench --engine memory --engine sqlite"))
      #expect(written.contains("| seed | 4 |"))
      #expect(written.contains("| durability | process |"))
      #expect(
        written.contains(
          #/\| software \| Stockroom [0-9.]+, SQLite 3[0-9.]+, LMDB [0-9.]+, LevelDB [0-9.]+, libpq [0-9.]+ \|/#
        ))
      let chart = try String(contentsOf: directory.appending(path: "My page.svg"), encoding: .utf8)
      #expect(chart.hasPrefix("<svg xmlns="))
    }
  }

  @Test("The files are written even if nobody reads the standard output")
  func brokenPipe() async throws {
    try await withTemporaryDirectory { directory in
      let page = directory.appending(path: "page.html")
      _ = try await CommandLineTool.run(
        [
          "bench", "--engine", "memory", "--entries", "50", "--repetitions", "1", "--workload", "count",
          "--html", page.path,
        ], by: #""$@" | true"#)
      let html = try String(contentsOf: page, encoding: .utf8)
      #expect(html.hasSuffix("</html>\n"))
    }
  }

  /// Arguments with a file that cannot be written, and the status and error of the command.
  private static let unwritable: [([String], Int32, String)] = [
    (
      ["--write-results", "/nowhere/page.md"], 1,
      "io: Writing /nowhere/page.md failed (No such file or directory"
    ),
    (
      ["--html", "/nowhere/page.html"], 1, "io: Writing /nowhere/page.html failed (No such file or directory"
    ),
    (["--html", "/tmp"], 1, "io: Writing /tmp failed (Is a directory"),
  ]

  @Test("A file that cannot be written is reported before anything is measured", arguments: unwritable)
  func early(arguments: [String], status: Int32, message: String) async throws {
    // So many repetitions would take hours.
    let output = try await CommandLineTool.run(
      ["bench", "--repetitions", "1000", "--entries", "100000"] + arguments)
    #expect(output.status == status)
    #expect(output.errorLines.count == 1)
    #expect(output.standardError.contains(message))
    #expect(output.standardOutput == "")
  }
}
