import Foundation
import Testing

@testable import ConformanceKit

#if canImport(FoundationXML)
  import FoundationXML
#endif

@Suite("JUnit XML")
struct JUnitTests {
  /// Every scalar up to U+00FF, some of which XML cannot contain, and the delimiters of XML.
  private static let everything =
    String(String.UnicodeScalarView((0...0xFF).compactMap(Unicode.Scalar.init)))
    + "\u{2028}\u{FFFE}\u{FFFF}\u{1F3B5} ]]> --> <![CDATA[ &amp; \"\u{301} <\u{301} &\u{301} \r\n \r end"

  private func junit(_ results: [(check: String, outcome: ConformanceOutcome, seconds: Double)]) throws
    -> Parsed
  {
    let report = ConformanceReport(
      name: "A \"<engine>\" & more\n", capabilities: [], budget: ConformanceBudget(),
      results: results.map {
        .init(check: $0.check, rule: .c1, expectation: "", outcome: $0.outcome, seconds: $0.seconds)
      }, seconds: 61.0625)
    return try Parsed(ConformanceResults([report, report]) { _, _ in "again & again" }.junit)
  }

  private func failure(_ actual: String, evidence: String?) -> ConformanceOutcome {
    .failed(
      ConformanceFailure(
        rule: .w2, check: "c", expectation: "it works", actual: actual, evidence: evidence, seed: 1))
  }

  @Test("A parser finds suites, cases, counts and times")
  func structure() throws {
    let document = try junit([
      ("a", .passed, 0.0404), ("b", .skipped("No \"disk\"\nhere."), 0),
      ("c", failure("it broke", evidence: nil), 1_000),
    ])
    #expect(
      document.elements.map(\.name) == ["testsuites"]
        + Array(
          repeating: [
            "testsuite", "properties", "property", "property", "property", "testcase", "testcase", "skipped",
            "testcase",
            "failure",
          ], count: 2
        ).flatMap { $0 })
    #expect(
      document.elements[0].attributes == [
        "name": "conformance", "tests": "6", "failures": "2", "errors": "0", "skipped": "2",
        "time": "122.125",
      ])
    #expect(
      document.elements[1].attributes == [
        "name": "A \"<engine>\" & more\n", "tests": "3", "failures": "1", "errors": "0", "skipped": "1",
        "time": "61.062",
      ])
    #expect(
      document.elements[3].attributes == ["name": "level", "value": "standard"])
    #expect(
      document.elements[4].attributes == ["name": "applicable checks", "value": "3"])
    #expect(
      document.elements[6].attributes == [
        "name": "a", "classname": "A \"<engine>\" & more\n.C1", "time": "0.040",
      ])
    #expect(document.elements[8].attributes == ["message": "No \"disk\" here."])
    #expect(document.elements[10].attributes == ["message": "it broke", "type": "W2"])
  }

  @Test("The body of a failure has the paragraph, the evidence and the reproduction, with all line breaks")
  func body() throws {
    let evidence = "let a = 1 < 2 && true\n\n  close()\t// ]]>"
    let document = try junit([("c", failure("it broke", evidence: evidence), 1)])
    let failure = try #require(document.elements.first { $0.name == "failure" })
    #expect(failure.text.hasPrefix("Rule W2 is broken (c). Expected: it works. But it broke. "))
    #expect(
      failure.text.hasSuffix(
        "\n\n    let a = 1 < 2 && true\n\n      close()\t// ]]>\n\nReproduce: again & again"))
  }

  @Test("With any text from an engine, the document stays well-formed and contains it")
  func anyCharacters() throws {
    let document = try junit([("c", failure(Self.everything, evidence: Self.everything), .infinity)])
    let failure = try #require(document.elements.first { $0.name == "failure" })
    let kept = "\u{1F3B5} ]]> --> <![CDATA[ &amp; \"\u{301} <\u{301} &\u{301}"
    for text in [failure.text, try #require(failure.attributes["message"])] {
      #expect(text.contains(#"\u{0}\u{1}"#))
      #expect(text.contains(#"\u{1E}\u{1F} !"#))
      #expect(text.contains(kept))
      #expect(text.contains(#"\u{FFFE}\u{FFFF}"#))
    }
    #expect(document.elements.first { $0.name == "testcase" }?.attributes["time"] == "0.000")
  }
}

/// The elements of a document in the order in which they begin.
private final class Parsed: NSObject, XMLParserDelegate {
  struct Element {
    let name: String
    let attributes: [String: String]
    var text = ""
  }

  private(set) var elements: [Element] = []
  private var open: [Int] = []

  init(_ document: String) throws {
    super.init()
    let parser = XMLParser(data: Data(document.utf8))
    parser.delegate = self
    let isWellFormed = parser.parse()
    try #require(
      isWellFormed, "\(String(describing: parser.parserError)) in line \(parser.lineNumber):\n\(document)")
  }

  func parser(
    _ parser: XMLParser, didStartElement name: String, namespaceURI: String?, qualifiedName: String?,
    attributes: [String: String]
  ) {
    open.append(elements.count)
    elements.append(Element(name: name, attributes: attributes))
  }

  func parser(_ parser: XMLParser, didEndElement name: String, namespaceURI: String?, qualifiedName: String?)
  {
    open.removeLast()
  }

  func parser(_ parser: XMLParser, foundCharacters characters: String) {
    if let element = open.last { elements[element].text += characters }
  }
}
