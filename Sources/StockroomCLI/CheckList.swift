import ConformanceKit

/// The checks that `stockroom conformance --list` prints.
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
