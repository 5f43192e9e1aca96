import Foundation
import Testing

@testable import ConformanceKit

@Suite("The reports")
struct ResultsTests {
  /// Text from an engine or a search that must not break any format.
  private static let nasty = "a < b && \"c\" ]]> *d* `e` | \u{1B}[31m \0 \u{FFFE} é🎵 >\u{301}\r\nnext"
  private static let evidence = "let engine = try open()\n\n  try await engine.close()\n```\n\u{7}"

  private func result(
    _ check: String, _ rule: ContractRule, _ outcome: ConformanceOutcome, seconds: Double = 0.25
  ) -> ConformanceReport.Result {
    .init(check: check, rule: rule, expectation: "it works", outcome: outcome, seconds: seconds)
  }

  private func failure(_ rule: ContractRule, evidence: String? = nil, actual: String = "it did not")
    -> ConformanceOutcome
  {
    .failed(
      ConformanceFailure(
        rule: rule, check: "history.any", expectation: "it works", actual: actual, evidence: evidence, seed: 7
      ))
  }

  private func report(_ name: String, _ results: [ConformanceReport.Result]) -> ConformanceReport {
    ConformanceReport(
      name: name, capabilities: ["persistent"], budget: ConformanceBudget(), results: results, seconds: 1.5)
  }

  private var good: ConformanceReport {
    report(
      "Good",
      [
        result("keys.one", .k1, .passed), result("keys.two", .k1, .passed),
        result("disk", .f1, .skipped("No disk.")),
      ])
  }
  private var bad: ConformanceReport {
    report(
      "Bad",
      [
        result("keys.one", .k1, .passed), result("disk", .f1, .skipped("No disk.")),
        // A search for lost updates that finds a wrong timestamp.
        result("history.any", .c1, failure(.w2, evidence: Self.evidence, actual: Self.nasty)),
      ])
  }
  private var both: ConformanceResults {
    ConformanceResults([good, bad]) { "again \($0.name) \($1.seed)" }
  }

  @Test("The text has the matrix, each failure in full, each reason for skipping once, and a conclusion")
  func text() {
    let expected = """
      Checks passed, by rule and engine.  ✗ failed   ○ could not be checked here   ! could not run   – does not apply

      rule    Good        Bad
      ─────  ─────  ─────────
      K1         2          1
      W2         –        ✗ 1
      F1       ○ 1        ○ 1
      total  2 ○ 1  1 ○ 1 ✗ 1

      ✗ Bad, history.any
        Rule W2 is broken (history.any). Expected: it works. But a < b && "c" ]]> *d* `e` | \\u{1B}[31m \\u{0} \
      \\u{FFFE} é🎵 >\u{301} next. The rule says: \(ContractRule.w2.summary)

            let engine = try open()

              try await engine.close()
            ```
            \\u{7}

        Reproduce: again Bad 7

      ○ Good, Bad, disk: No disk.
      ○ Good, Bad, level standard: at most 10,001 entries and values of 16 MiB in the checks of all sizes, and fewer calls, rounds and faults in the other checks than at exhaustive.

      Bad: contract broken. 3 checks passed, 1 failed, 2 skipped.

      """
    #expect(both.text == expected)
  }

  @Test("The Markdown has the summary of each rule and the evidence as code")
  func markdown() {
    let lines = both.markdown.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines.contains("| rule | what it promises | Good | Bad |"))
    #expect(lines.contains("| --- | --- | ---: | ---: |"))
    #expect(lines.contains("| W2 | \(ContractRule.w2.summary) | – | ✗ 1 |"))
    #expect(lines.contains("| total |  | 2 ○ 1 | 1 ○ 1 ✗ 1 |"))
    let conclusion = lines.firstIndex { $0.hasPrefix("- ✗ **Bad**, `history.any`: Rule W2 is broken") } ?? 0
    #expect(lines[conclusion].contains(#"a \< b \&\& "c" ]]> \*d\* \`e\` \| \u{1B}\[31m"#))
    #expect(
      lines[conclusion...].dropFirst().prefix(10) == [
        "", "  ````", "  let engine = try open()", "", "    try await engine.close()", "  ```", #"  \u{7}"#,
        "  ````",
        "", "  Reproduce: `again Bad 7`",
      ])
    #expect(lines.contains("- ○ Good, Bad, `disk`: No disk."))
  }

  @Test("The JSON is complete, and characters are preserved")
  func json() throws {
    let object = try JSONSerialization.jsonObject(with: try both.json()) as? [String: Any]
    #expect(object?["conforms"] as? Bool == false)
    let engines = try #require(object?["engines"] as? [[String: Any]])
    #expect(engines.map { $0["name"] as? String } == ["Good", "Bad"])
    #expect(engines.map { $0["passed"] as? Int } == [2, 1])
    #expect(engines.map { $0["skipped"] as? Int } == [1, 1])
    #expect(engines.map { $0["failed"] as? Int } == [0, 1])
    #expect(engines[1]["capabilities"] as? [String] == ["persistent"])
    #expect((engines[1]["budget"] as? [String: Any])?["operations"] as? Int == ConformanceBudget().operations)
    let checks = try #require(engines[1]["checks"] as? [[String: Any]])
    #expect(checks.map { $0["status"] as? String } == ["passed", "skipped", "failed"])
    #expect(checks[1]["reason"] as? String == "No disk.")
    #expect(checks[2]["rule"] as? String == "C1")
    let failure = try #require(checks[2]["failure"] as? [String: Any])
    #expect(failure["rule"] as? String == "W2")
    #expect(failure["evidence"] as? String == Self.evidence)
    #expect(failure["seed"] as? Int == 7)
    #expect(failure["reproduction"] as? String == "again Bad 7")
    #expect(failure["actual"] as? String == Self.nasty)
  }

  @Test("Without a command, a failure says which settings reproduce it")
  func reproduction() {
    #expect(
      ConformanceResults([bad]).text.contains(
        #"Reproduce: run(only: ["history.any"]) of the suite, with budget = .standard, budget.seed = 7, budget.operations = "#
      ))
  }

  @Test("The conclusion depends on the checks that ran")
  func conclusions() {
    let nothing = report("Nothing", [result("disk", .f1, .skipped("No disk."))])
    #expect(ConformanceResults([nothing]).conclusion.hasPrefix("No check could run. "))
    #expect(ConformanceResults([good]).conclusion.hasPrefix("Every engine follows the contract. "))
    #expect(ConformanceResults([good]).isConforming)
    #expect(!both.isConforming)
  }

  @Test(
    "The conclusion of an incomplete run says how many checks passed, and not that the contract is followed"
  )
  func subset() throws {
    let results = [result("keys.one", .k1, .passed), result("keys.two", .k1, .passed)]
    let some = ConformanceReport(
      name: "Some", capabilities: [], budget: ConformanceBudget(), results: results, applicableCount: 187,
      seconds: 1)
    #expect(
      ConformanceResults([some]).conclusion
        == "Passed 2 of 187 checks, which does not show whether the contract is followed. 2 checks passed, 0 "
        + "failed, 0 skipped."
    )
    #expect(some.isConforming && !some.isComplete)
    let object =
      try JSONSerialization.jsonObject(with: try ConformanceResults([some]).json()) as? [String: Any]
    #expect(object?["conforms"] is NSNull)
    #expect((object?["engines"] as? [[String: Any]])?.first?["applicable"] as? Int == 187)
    let whole =
      try JSONSerialization.jsonObject(with: try ConformanceResults([good]).json()) as? [String: Any]
    #expect(whole?["conforms"] as? Bool == true)
  }

  @Test("A run without a worker process says how many checks it left out, in every format")
  func leftOut() throws {
    let skipped = ConformanceOutcome.skipped(ConformanceSuite.hasNoWorker)
    let report = ConformanceReport(
      name: "Alone", capabilities: [], budget: ConformanceBudget(),
      results: [
        result("keys.one", .k1, .passed), result("killed.one", .w6, skipped),
        result("killed.two", .w6, skipped),
      ], leftOutCount: 2, seconds: 1)
    let results = ConformanceResults([report])
    #expect(results.text.contains("○ Alone, 2 checks left out: The suite has no worker process"))
    #expect(
      results.text.contains(
        "Passed 1 of 3 checks, which does not show whether the contract is followed."))
    #expect(!results.text.contains("killed.one"))
    #expect(results.markdown.contains("`2 checks left out`: The suite has no worker process"))
    #expect(
      results.junit.contains(#"<property name="checks left out for lack of a worker process" value="2"/>"#))
    let object = try JSONSerialization.jsonObject(with: try results.json()) as? [String: Any]
    #expect((object?["engines"] as? [[String: Any]])?.first?["leftOut"] as? Int == 2)
  }

  @Test(
    "A run at quick says what its level leaves out, and not that the contract is followed, in every format")
  func quick() throws {
    let results = [
      result("keys.one", .k1, .passed),
      ConformanceReport.Result(
        check: "life.long", rule: .w1, expectation: "it works", outcome: .passed, seconds: 1,
        shortfall: "20 of 2000 calls"),
    ]
    let report = ConformanceReport(
      name: "Fast", capabilities: [], budget: .quick, results: results,
      laterChecks: [.exhaustive: 1, .standard: 4], seconds: 1)
    let shown = ConformanceResults([report])
    #expect(report.isCompleteForLevel && !report.isComplete)
    #expect(shown.text.contains("Passed all 2 checks of the level quick. "))
    #expect(!shown.text.contains("follows the contract"))
    let summary =
      "4 checks run only from standard on; 1 check runs only from exhaustive on; at most 4,097 entries and values of 1 MiB in the "
      + "checks of all sizes, and the fewest calls, rounds and faults in the other checks."
    #expect(shown.text.contains("○ Fast, level quick: \(summary)"))
    #expect(shown.markdown.contains("`level quick`: \(summary)"))
    #expect(
      shown.text.contains("1 checks did not go as far as the level requires: life.long (20 of 2000 calls)."))
    #expect(shown.junit.contains(#"<property name="checks made from the level standard on" value="4"/>"#))
    let object = try JSONSerialization.jsonObject(with: try shown.json()) as? [String: Any]
    #expect(object?["conforms"] is NSNull)
    let engine = try #require((object?["engines"] as? [[String: Any]])?.first)
    #expect(engine["laterChecks"] as? [String: Int] == ["standard": 4, "exhaustive": 1])
    let decoded = try JSONDecoder().decode(ConformanceReport.self, from: try JSONEncoder().encode(report))
    #expect(decoded == report)
  }

  @Test("A check that failed itself is distinguished from an engine that breaks a rule, in every format")
  func checkErrors() throws {
    let report = report(
      "Full", [result("keys.one", .k1, .passed), result("keys.two", .k1, .couldNotRun("No room\nhere."))])
    let results = ConformanceResults([report])
    #expect(!results.isConforming && report.failures.isEmpty)
    #expect(results.text.contains("K1     1 ! 1"))
    #expect(results.text.contains("! Full, keys.two: could not run: No room here."))
    #expect(
      results.text.contains(
        "Passed 1 of 2 checks, which does not show whether the contract is followed."))
    #expect(results.markdown.contains("- ! **Full**, `keys.two`: could not run: No room here."))
    #expect(results.junit.contains(#"<error message="No room here."/>"#))
    #expect(results.junit.contains(#"tests="2" failures="0" errors="1" skipped="0""#))
    let object = try JSONSerialization.jsonObject(with: try results.json()) as? [String: Any]
    #expect(object?["conforms"] is NSNull)
    let outcome = ConformanceOutcome.couldNotRun("No room.")
    #expect(
      try JSONDecoder().decode(ConformanceOutcome.self, from: try JSONEncoder().encode(outcome)) == outcome)
  }

  @Test("A failure shows its evidence below its paragraph, and survives JSON with it")
  func failureWithEvidence() throws {
    let outcome = failure(.w2, evidence: "one\n\ntwo")
    let failure = try #require(outcome.failure)
    #expect(!failure.paragraph.contains("\n"))
    #expect("\(failure)" == failure.paragraph + "\n\n    one\n\n    two")
    let decoded = try JSONDecoder().decode(ConformanceOutcome.self, from: try JSONEncoder().encode(outcome))
    #expect(decoded == outcome)
  }
}
