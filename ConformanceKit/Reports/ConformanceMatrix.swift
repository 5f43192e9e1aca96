import StockroomCore
import StockroomKitSupport

/// The number of checks that apply to each engine, by rule, or the results of a run.
///
/// Without results it depends on the suites alone, so it is the same on every machine.
public struct ConformanceMatrix: Sendable {
  private let table: TextTable

  /// The matrix of the number of checks that the suites would run.
  public init(_ suites: [ConformanceSuite]) {
    let columns = suites.map { suite in (name: suite.name, rules: suite.checks.map(\.rule)) }
    table = TextTable(
      engines: columns.map(\.name), rules: Set(columns.flatMap(\.rules)), includesSummaries: true
    ) {
      engine, rule in
      let count = columns[engine].rules.count { rule == nil || $0 == rule }
      return count == 0 ? "–" : "\(count)"
    }
  }

  /// The matrix in GitHub's Markdown, with the text of each rule; – where no check applies to an engine.
  public var markdown: String { table.markdown }
}

extension ConformanceResults {
  /// The results of the checks, by rule and engine.
  func matrix(includingSummaries includesSummaries: Bool) -> TextTable {
    let columns = reports.map { Dictionary(grouping: $0.results, by: \.shownRule) }
    return TextTable(
      engines: reports.map(\.name.inOneLine.withVisibleControls), rules: Set(columns.flatMap(\.keys)),
      includesSummaries: includesSummaries
    ) { engine, rule in
      Tally(rule.map { columns[engine][$0, default: []] } ?? reports[engine].results).cell
    }
  }
}

extension TextTable {
  /// A table with a row for each of the rules, in the order of the contract, and a column for each engine.
  ///
  /// - Parameter cell: Returns the text of the cell of an engine, given by its index, for a rule or, if that
  ///   is nil, for all rules.
  fileprivate init(
    engines: [String], rules: Set<ContractRule>, includesSummaries: Bool, cell: (Int, ContractRule?) -> String
  ) {
    func row(_ title: String, _ sentence: String, _ cells: [String]) -> [String] {
      [title] + (includesSummaries ? [sentence] : []) + cells
    }
    let rows = ContractRule.allCases.filter(rules.contains).map { rule in
      row(rule.rawValue, rule.summary, engines.indices.map { cell($0, rule) })
    }
    let total = row("total", "", engines.indices.map { cell($0, nil) })
    self.init(
      header: row("rule", "what it promises", engines), rows: rows + [total],
      wordColumns: includesSummaries ? 2 : 1)
  }
}
