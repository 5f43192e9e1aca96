import Foundation
import StockroomCore
import Testing

@testable import StockroomCLI

@Suite struct ReadmeTests {
  static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()
  let page: String
  let compiled: String

  init() throws {
    page = try String(contentsOf: Self.root.appending(path: "README.md"), encoding: .utf8)
    compiled = try String(
      contentsOf: Self.root.appending(path: "Tests/ReadmeTests/Snippets.swift"), encoding: .utf8)
  }

  /// The Swift code on the page, without its imports. A manifest is not compiled here.
  var snippets: [String] {
    page.components(separatedBy: "```swift\n").dropFirst()
      .compactMap { $0.components(separatedBy: "\n```").first }
      .filter { !$0.hasPrefix("// Package.swift") }
      .map { snippet in
        snippet.split(separator: "\n", omittingEmptySubsequences: false)
          .drop { $0.hasPrefix("import ") || $0.isEmpty }
          .joined(separator: "\n")
      }
  }

  @Test("All Swift code on the page is compiled")
  func code() {
    #expect(snippets.count >= 4)
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
    let table = page.components(separatedBy: "<!-- engines -->\n").last?
      .components(separatedBy: "\n<!-- end of engines -->").first
    #expect(table == expected.joined(separator: "\n"), "It should be:\n\(expected.joined(separator: "\n"))")
  }

  @Test("Every file that the page links to exists")
  func links() throws {
    let targets = page.components(separatedBy: "](").dropFirst().compactMap {
      $0.components(separatedBy: ")").first
    }
    #expect(!targets.isEmpty)
    for target in targets {
      let path = Self.root.appending(path: target).path(percentEncoded: false)
      #expect(FileManager.default.fileExists(atPath: path), "\(target)")
    }
  }
}
