import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import Testing

@testable import StockroomCLI

/// A page of the documentation, and the file in which its code is compiled.
struct Page: CustomTestStringConvertible {
  static let readme = Page(path: "README.md")
  static let all =
    [readme]
    + ["GettingStarted", "ChoosingAnEngine", "ComingFromOtherLibraries"].map {
      Page(path: "Documentation/\($0).md")
    }

  static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()

  let path: String

  var testDescription: String { path }
  var url: URL { Self.root.appending(path: path) }

  func text() throws -> String { try String(contentsOf: url, encoding: .utf8) }

  func compiledCode() throws -> String {
    let name = url.deletingPathExtension().lastPathComponent
    return try String(
      contentsOf: Self.root.appending(path: "Tests/ReadmeTests/\(name)Snippets.swift"), encoding: .utf8)
  }

  /// The Swift code on the page, without its imports. A manifest is not compiled here.
  func snippets() throws -> [String] {
    try text().components(separatedBy: "```swift\n").dropFirst()
      .compactMap { $0.components(separatedBy: "\n```").first }
      .filter { !$0.hasPrefix("// Package.swift") }
      .map { snippet in
        snippet.split(separator: "\n", omittingEmptySubsequences: false)
          .drop { $0.hasPrefix("import ") || $0.isEmpty }
          .joined(separator: "\n")
      }
  }
}

@Suite struct ReadmeTests {
  @Test("All Swift code on the page is compiled", arguments: Page.all)
  func code(_ page: Page) throws {
    let (snippets, compiled) = (try page.snippets(), try page.compiledCode())
    #expect(!snippets.isEmpty)
    for snippet in snippets { #expect(compiled.contains(snippet), "\(snippet)") }
  }

  @Test("The table of engines says what they promise")
  func table() throws {
    func row(_ cells: [String]) -> String { "| " + cells.joined(separator: " | ") + " |" }
    let engines = EngineCatalogue.all
    let rows = EngineCapabilities.named.map { name, capability in
      row([name] + engines.map { $0.capabilities.contains(capability) ? "yes" : "–" })
    }
    let expected = [row([""] + engines.map(\.title)), row(["---"] + engines.map { _ in ":-:" })] + rows
    let table = MarkedSection(name: "engines", content: "the table").content(of: try Page.readme.text())
    #expect(table == expected.joined(separator: "\n"), "It should be:\n\(expected.joined(separator: "\n"))")
  }

  @Test("The matrix says how many checks hold each engine to each rule")
  func matrix() throws {
    let text = try Page.readme.text()
    let suites = EngineCatalogue.all.map { $0.suite(in: FileManager.default.temporaryDirectory) }
    let expected = try #require(
      MarkedSection.conformance.replacing(in: text, with: ConformanceMatrix(suites).markdown))
    let isUpToDate = text == expected
    #expect(isUpToDate, "`swift run stockroom conformance --write-matrix README.md` brings it up to date.")
  }

  @Test("The chart and the table of speeds are those of the results")
  func results() throws {
    let results = try String(contentsOf: Page.root.appending(path: "RESULTS.md"), encoding: .utf8)
    let expected = try #require(MarkedSection.results.content(of: results))
    let isUpToDate = MarkedSection.results.content(of: try Page.readme.text()) == expected
    #expect(isUpToDate, "`make results` writes both.")
    #expect(FileManager.default.fileExists(atPath: Page.root.appending(path: "RESULTS.svg").path()))
  }

  @Test("Every file that the page links to exists", arguments: Page.all)
  func links(_ page: Page) throws {
    let targets = try page.text().components(separatedBy: "](").dropFirst().compactMap {
      $0.components(separatedBy: ")").first
    }
    #expect(!targets.isEmpty)
    for target in targets {
      let path = page.url.deletingLastPathComponent().appending(path: target).path(percentEncoded: false)
      #expect(FileManager.default.fileExists(atPath: path), "\(target)")
    }
  }
}
