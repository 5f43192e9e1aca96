import ConformanceKit
import Foundation
import StockroomCore
import StockroomEngines
import Testing

@testable import StockroomCLI

/// A page of the documentation. A file of this target contains its Swift code, with only the imports that the
/// page shows.
struct Page: CustomTestStringConvertible {
  static let readme = Page(path: "README.md")
  static let engines = Page(path: "Sources/Stockroom/Stockroom.docc/ChoosingAnEngine.md")
  static let contract = Page(path: "ConformanceKit/ConformanceKit.docc/Contract.md")

  static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()

  /// The DocC catalog of each module that has one.
  static func catalogs() throws -> [(module: String, path: String)] {
    let sources = try FileManager.default.contentsOfDirectory(atPath: root.appending(path: "Sources").path())
    let folders =
      sources.map { ($0, "Sources/\($0)") }
      + [("ConformanceKit", "ConformanceKit"), ("BenchmarkKit", "Benchmarks/BenchmarkKit")]
    return folders.map { (module: $0, path: "\($1)/\($0).docc/") }
      .filter { FileManager.default.fileExists(atPath: root.appending(path: $0.path).path()) }
  }

  /// The pages at the root of the package, and those of every catalog.
  static func all() throws -> [Page] {
    try ([""] + catalogs().map(\.path)).sorted().flatMap { directory in
      try FileManager.default.contentsOfDirectory(atPath: root.appending(path: directory).path())
        .filter { $0.hasSuffix(".md") }.sorted().map { Page(path: directory + $0) }
    }
  }

  static func withCode() throws -> [Page] { try all().filter { try !$0.snippets().isEmpty } }
  static func withLinks() throws -> [Page] { try all().filter { try !$0.links().isEmpty } }

  let path: String

  var testDescription: String { path }
  var url: URL { Self.root.appending(path: path) }

  func text() throws -> String { try String(contentsOf: url, encoding: .utf8) }

  /// The Swift code on the page. A manifest is not compiled here.
  func snippets() throws -> [Snippet] {
    try text().components(separatedBy: "```swift\n").dropFirst()
      .compactMap { $0.components(separatedBy: "\n```").first }
      .filter { !$0.hasPrefix("// Package.swift") }
      .map(Snippet.init)
  }

  /// The file in which the code is compiled.
  func compiledCode() throws -> String {
    let name = url.deletingPathExtension().lastPathComponent
    return try String(
      contentsOf: Self.root.appending(path: "Tests/ReadmeTests/\(name)Snippets.swift"), encoding: .utf8)
  }

  /// The targets of the page's links, except those on the web.
  func links() throws -> [String] {
    try text().components(separatedBy: "](").dropFirst()
      .compactMap { $0.components(separatedBy: ")").first }
      .filter { !$0.hasPrefix("https://") }
  }
}

/// Swift code in one block of a page.
struct Snippet {
  let imports: [String]
  let code: String

  init(_ text: String) {
    let lines = text.components(separatedBy: "\n")
    let body = lines.drop { $0.hasPrefix("import ") || $0.isEmpty }
    imports = lines.prefix(lines.count - body.count).filter { !$0.isEmpty }
    code = body.joined(separator: "\n")
  }
}

@Suite struct ReadmeTests {
  @Test(
    "All Swift code on the page is compiled, with the imports on the page", arguments: try Page.withCode())
  func code(_ page: Page) throws {
    let (snippets, compiled) = (try page.snippets(), try page.compiledCode())
    // Also without the indentation that it has between `#if` and `#endif`.
    let code = compiled + compiled.replacing("\n  ", with: "\n")
    for snippet in snippets { #expect(code.contains(snippet.code), "\(snippet.code)") }
    let imports = compiled.components(separatedBy: "\n").filter { $0.hasPrefix("import ") }
    #expect(imports == Set(snippets.flatMap(\.imports)).sorted())
  }

  @Test("README and guides have Swift code")
  func pagesWithCode() throws {
    let paths = Set(try Page.withCode().map(\.path))
    #expect(paths.isSuperset(of: [Page.readme.path, Page.engines.path]), "\(paths)")
  }

  @Test("The Swift Package Index builds every catalog")
  func packageIndex() throws {
    let index = try String(contentsOf: Page.root.appending(path: ".spi.yml"), encoding: .utf8)
      .components(separatedBy: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
    for (module, _) in try Page.catalogs() {
      let isBuilt = index.contains("- \(module)")
      #expect(isBuilt, ".spi.yml needs \(module).")
    }
  }

  @Test("The README has at most 120 lines")
  func length() throws {
    #expect(try Page.readme.text().count { $0 == "\n" } <= 120)
  }

  @Test("The table of engines says what they promise")
  func table() throws {
    func row(_ cells: [String]) -> String { "| " + cells.joined(separator: " | ") + " |" }
    let engines = EngineCatalog.all
    let rows = EngineCapabilities.named.map { name, capability in
      row([name] + engines.map { $0.capabilities.contains(capability) ? "yes" : "–" })
    }
    let expected = [row([""] + engines.map(\.title)), row(["---"] + engines.map { _ in ":-:" })] + rows
    let table = MarkedSection(name: "engines", content: "the table").content(of: try Page.engines.text())
    #expect(table == expected.joined(separator: "\n"), "It should be:\n\(expected.joined(separator: "\n"))")
  }

  @Test("The matrix says how many checks hold each engine to each rule")
  func matrix() throws {
    let text = try Page.contract.text()
    let suites = EngineCatalog.all.map { $0.suite(in: FileManager.default.temporaryDirectory) }
    let expected = try #require(
      MarkedSection.conformance.replacing(in: text, with: ConformanceMatrix(suites).markdown))
    let isUpToDate = text == expected
    #expect(
      isUpToDate,
      "`swift run stockroom conformance --write-matrix \(Page.contract.path)` brings it up to date.")
  }

  @Test("The figures in the README are those of the results")
  func results() throws {
    let results = try String(contentsOf: Page.root.appending(path: "RESULTS.md"), encoding: .utf8)
      .components(separatedBy: "\n").map { line in
        line.split(separator: "|").map { $0.trimmingCharacters(in: CharacterSet(charactersIn: " *≈")) }
      }
    func time(_ workload: String, _ engine: String) throws -> String {
      let header = try #require(results.first { $0.first == "workload" && $0.contains(engine) })
      let row = try #require(results.first { $0.first == workload })
      return row[try #require(header.firstIndex(of: engine))]
    }
    let readme = try Page.readme.text().replacing("\n", with: " ")
    for engine in ["SQLite", "LMDB", "LevelDB"] {
      let expected = try "\(engine) \(time("write-one", engine)) and \(time("read-one", engine))"
      #expect(readme.contains(expected), "\(expected)")
    }
    #expect(FileManager.default.fileExists(atPath: Page.root.appending(path: "RESULTS.svg").path()))
  }

  @Test("Every file that the page links to exists", arguments: try Page.withLinks())
  func links(_ page: Page) throws {
    for link in try page.links() {
      // A `doc:` link names a page of the same catalog.
      let target = link.hasPrefix("doc:") ? link.dropFirst("doc:".count) + ".md" : Substring(link)
      let path = page.url.deletingLastPathComponent().appending(path: target).path(percentEncoded: false)
      #expect(FileManager.default.fileExists(atPath: path), "\(link)")
    }
  }
}
