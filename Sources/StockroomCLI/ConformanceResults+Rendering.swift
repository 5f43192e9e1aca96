import BenchmarkKit
import ConformanceKit
import Foundation

extension ConformanceResults {
  /// The table, what failed and what was skipped.
  func rendered(as format: OutputFormat) throws -> String {
    switch format {
    case .text:
      let legend =
        "Checks passed, by rule and engine.  ✗ failed   ○ could not be checked here   – does not apply"
      let failures = engines.flatMap { engine in
        engine.reasons(for: .failed).map { "✗ \(engine.title), \($0.check)\n  \($0.reason)" }
      }
      let skips = skippedChecks.map { "○ \($0.engines), \($0.check): \($0.reason)" }
      return paragraphs([legend, table.text] + failures + [skips.joined(separator: "\n"), verdict])
    case .markdown:
      let legend =
        "Checks passed, by rule and engine. ✗: failed; ○: could not be checked here; –: does not apply."
      let failures = engines.flatMap { engine in
        engine.reasons(for: .failed).map { "- ✗ **\(engine.title)**, `\($0.check)`: \($0.reason)" }
      }
      let skips = skippedChecks.map { "- ○ \($0.engines), `\($0.check)`: \($0.reason)" }
      return paragraphs([legend, table.markdown, (failures + skips).joined(separator: "\n"), verdict])
    case .json:
      return try jsonText(self)
    }
  }

  private var table: TextTable {
    let rules = ContractRule.allCases.filter { rule in
      engines.contains { engine in engine.checks.contains { $0.rule == rule } }
    }
    let rows = rules.map { rule in [rule.rawValue] + engines.map { $0.cell(for: rule) } }
    let total = ["total"] + engines.map { cell(passed: $0.passed, failed: $0.failed, skipped: $0.skipped) }
    return TextTable(header: ["rule"] + engines.map(\.title), rows: rows + [total])
  }

  /// The checks that were skipped, with the engines for which they were, as one reason mostly holds for several.
  private var skippedChecks: [(check: String, engines: String, reason: String)] {
    var found: [(check: String, engines: String, reason: String)] = []
    for engine in engines {
      for (check, reason) in engine.reasons(for: .skipped) {
        if let index = found.firstIndex(where: { $0.check == check && $0.reason == reason }) {
          found[index].engines += ", \(engine.title)"
        } else {
          found.append((check, engine.title, reason))
        }
      }
    }
    return found
  }

  private var verdict: String {
    let passed = engines.reduce(0) { $0 + $1.passed }
    let failed = engines.reduce(0) { $0 + $1.failed }
    let skipped = engines.reduce(0) { $0 + $1.skipped }
    let figures = "\(passed) checks passed, \(failed) failed, \(skipped) skipped"
    let breakers = engines.filter { $0.failed > 0 }.map(\.title)
    if !breakers.isEmpty { return "\(breakers.joined(separator: ", ")): contract broken. \(figures)." }
    return "Every engine keeps the contract. \(figures)."
  }
}

extension ConformanceResults.Engine {
  fileprivate func cell(for rule: ContractRule) -> String {
    let checks = checks.filter { $0.rule == rule }
    return StockroomCLI.cell(
      passed: checks.count { $0.status == .passed }, failed: checks.count { $0.status == .failed },
      skipped: checks.count { $0.status == .skipped })
  }

  fileprivate func reasons(for status: ConformanceResults.Outcome.Status) -> [(check: String, reason: String)]
  {
    checks.filter { $0.status == status }.map { ($0.check, $0.reason ?? "") }
  }
}

/// What a cell of the table says: how many checks were passed, and whether others were not.
private func cell(passed: Int, failed: Int, skipped: Int) -> String {
  var parts: [String] = []
  if passed > 0 { parts.append("\(passed)") }
  if skipped > 0 { parts.append("○ \(skipped)") }
  if failed > 0 { parts.append("✗ \(failed)") }
  return parts.isEmpty ? "–" : parts.joined(separator: " ")
}

/// The checks that a run would make.
struct CheckList: Encodable {
  struct Check: Encodable {
    let check: String
    let rule: ContractRule
    let expectation: String
  }

  let checks: [Check]

  init(_ checks: [ConformanceCheck]) {
    self.checks = checks.map { Check(check: $0.id, rule: $0.rule, expectation: $0.expectation) }
  }

  func rendered(as format: OutputFormat) throws -> String {
    switch format {
    case .text:
      let width = checks.map(\.check.count).max() ?? 0
      return checks.map { check in
        let blanks = String(repeating: " ", count: width - check.check.count)
        return "\(check.rule)  \(check.check)\(blanks)  \(check.expectation)\n"
      }.joined()
    case .markdown:
      return checks.map { "- \($0.rule) `\($0.check)`: \($0.expectation)\n" }.joined()
    case .json:
      return try jsonText(self)
    }
  }
}

/// One JSON object with its keys in alphabetical order.
func jsonText(_ value: some Encodable) throws -> String {
  let encoder = JSONEncoder()
  encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
  encoder.dateEncodingStrategy = .iso8601
  return String(decoding: try encoder.encode(value), as: UTF8.self) + "\n"
}

/// The texts that are not empty, with an empty line between each and the next.
private func paragraphs(_ texts: [String]) -> String {
  texts.filter { !$0.isEmpty }.joined(separator: "\n\n") + "\n"
}
