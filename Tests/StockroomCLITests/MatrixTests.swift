import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import Testing

@testable import StockroomCLI

@Suite("The matrix in a text") struct MatrixTests {
  private let matrix = ConformanceMatrix(
    EngineCatalog.all.map { $0.suite(in: FileManager.default.temporaryDirectory) })

  @Test("The command writes the matrix between its marks and nothing else")
  func command() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "a page.md")
      let (head, tail) = (
        "é before\n\n\(MarkedSection.conformance.begin)\n",
        "\(MarkedSection.conformance.end)\nafter, without a line break"
      )
      try Data((head + "old\n\nolder\n" + tail).utf8).write(to: file)
      for _ in 1...2 {
        let output = try await CommandLineTool.run(
          "conformance", "--write-matrix", file.path(percentEncoded: false))
        #expect(output.status == 0)
        #expect(output.standardOutput == "" && output.standardError == "")
        #expect(try String(contentsOf: file, encoding: .utf8) == head + matrix.markdown + "\n" + tail)
      }
      #expect(try contents(of: directory) == ["a page.md"])
    }
  }

  @Test("An engine has a figure where checks apply to it and a dash where none do")
  func cells() throws {
    let lines = matrix.markdown.split(separator: "\n")
    let titles = EngineCatalog.all.map(\.title).joined(separator: " | ")
    #expect(lines.first == "| rule | what it promises | \(titles) |")
    #expect(lines.count == 2 + ContractRule.allCases.count + 1)
    // Rule W6 applies to persistent engines only.
    let w6 = try #require(lines.first { $0.hasPrefix("| W6 | ") })
    let cells = w6.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
    #expect(cells.count == 2 + EngineCatalog.all.count)
    for (engine, cell) in zip(EngineCatalog.all, cells.dropFirst(2)) {
      #expect(engine.capabilities.contains(.persistent) ? Int(cell) != nil : cell == "–", "\(engine.title)")
    }
  }

  @Test(
    "A file without the marks, each once and in order, is not changed",
    arguments: [
      "", "none", "<!-- conformance -->\n", "<!-- end of conformance -->\n<!-- conformance -->\n",
      "<!-- conformance -->\n<!-- conformance -->\n<!-- end of conformance -->",
    ])
  func marks(text: String) async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "page.md")
      try Data(text.utf8).write(to: file)
      let output = try await CommandLineTool.run(
        "conformance", "--write-matrix", file.path(percentEncoded: false))
      #expect(output.status == 64)
      #expect(output.errorLines.count == 1)
      #expect(
        output.standardError.contains(
          "page.md needs a line <!-- conformance --> and below it a line <!-- end"))
      #expect(try String(contentsOf: file, encoding: .utf8) == text)
    }
  }

  @Test("The error of a missing file names it and the cause, and the status is 1")
  func noFile() async throws {
    let output = try await CommandLineTool.run("conformance", "--write-matrix", "/nowhere/page.md")
    #expect(output.status == 1)
    #expect(
      output.standardError
        == "stockroom: io: Reading /nowhere/page.md failed (No such file or directory, errno 2)\n")
  }
}
