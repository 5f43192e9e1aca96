import Testing

@testable import ConformanceKit

private let (a, b, c) = (0, 1, 2)

@Suite("The timeline of a violation")
struct TimelineTests {
  @Test("The timeline shows the order of calls, with a line for each task")
  func drawing() {
    let calls: [HistoryCall] = [.write(a, 7, by: 3, 1, 3), .read(a, 6, by: 5, 2, 9), .remove(b, by: 3, 4, 5)]
    let drawn = HistoryTimeline(calls: calls, initial: [6, 0, 0]).description
    #expect(
      drawn == """
        Before: "a" is 6
        task 3  |--write("a", 7)--| |--remove("b")--|
        task 5    |-----------read("a") → 6-----------|
        """)
  }

  @Test("Shrinking keeps the calls that cannot be ordered")
  func shrinking() {
    var calls: [HistoryCall] = []
    for step in 0..<200 {
      calls.append(.write(step % 3, step + 1, by: 1, step * 10, step * 10 + 7))
      calls.append(.read((step + 1) % 3, step < 2 ? nil : step - 1, by: 2, step * 10 + 5, step * 10 + 8))
    }
    let checker = LinearizabilityChecker.strict()
    #expect(checker.isLegal(calls))
    let stale = HistoryCall.read(a, 91, by: 9, 1_001, 1_004)
    #expect(checker.isIllegal(calls + [stale]))
    let evidence = TimelineShrinker(checker: checker).shrunk(calls + [stale])
    #expect(evidence.count == 3, "\(HistoryTimeline(calls: evidence, initial: [0, 0, 0]))")
    #expect(evidence.last == stale)
    #expect(evidence.first == HistoryCall.write(a, 91, by: 1, 900, 907))
  }

  @Test("The rule is the one without which the calls could be explained")
  func rules() throws {
    let batch = HistoryCall.change(
      .writeMany, [.write(key: a, value: 1), .write(key: b, value: 1)], by: 1, 1, 10)
    let half = [batch, .read(a, 1, by: 2, 2, 3), .read(b, nil, by: 2, 4, 5)]
    let torn: [HistoryCall] = [
      .write(a, 1, by: 1, 2, 3), .write(b, 1, by: 1, 4, 5),
      .look(.readAll, [a, b, c], .found([b: 1]), by: 2, 1, 6),
    ]
    let cancelled: [HistoryCall] = [
      .change(.write, [.write(key: a, value: 1)], by: 1, 1, 3, threw: .cancelled), .read(a, 1, by: 2, 4, 5),
    ]
    let inverted: [HistoryCall] = [
      .write(a, 1, by: 1, 1, 10), .read(a, 1, by: 2, 2, 3), .read(a, nil, by: 3, 4, 5),
    ]
    let stale: [HistoryCall] = [.write(a, 1, by: 1, 1, 2), .read(a, nil, by: 1, 3, 4)]
    let counted: [HistoryCall] = [.write(a, 1, by: 1, 1, 2), .look(.keyCount, [], .count(2), by: 2, 3, 4)]
    for (history, rule) in [
      (half, .w4), (torn, .r3), (cancelled, .c4), (inverted, .c1), (stale, .w1), (counted, .l2),
    ] as [([HistoryCall], ContractRule)] {
      let violation = try #require(
        LinearizabilityViolation(history, checker: .strict(), ambiguous: .c1))
      #expect(violation.rule == rule)
      #expect(violation.calls.count == history.count)
      #expect(violation.violation.evidence?.contains("task 1") == true)
    }
    #expect(LinearizabilityViolation([batch], checker: .strict(), ambiguous: .c1) == nil)
  }

  @Test("A removal that was cancelled and happened is found in a long history")
  func cancelledRemoval() throws {
    var calls: [HistoryCall] = []
    for step in 0...100 {
      let time = step * 10
      calls.append(.write(a, step + 1, by: 1, time, time + 1))
      calls.append(.change(.remove, [.remove(key: a)], by: 2, time + 2, time + 3, threw: .cancelled))
      calls.append(.read(a, step == 50 ? nil : step + 1, by: 3, time + 4, time + 5))
    }
    let violation = try #require(LinearizabilityViolation(calls, checker: .strict(), ambiguous: .c1))
    #expect(violation.rule == .c4)
    #expect(violation.calls.map(\.method) == [.write, .remove, .read])
  }

  @Test("A cancelled call may have happened, but need not have")
  func cancelledInVain() {
    let calls: [HistoryCall] = [
      .write(a, 1, by: 1, 0, 1), .change(.remove, [.remove(key: a)], by: 2, 2, 3, threw: .cancelled),
      .read(a, 1, by: 3, 4, 5),
    ]
    for delay in [nil, 0, 10, .max] as [Int?] {
      #expect(LinearizabilityChecker.strict { $0.delayOfCancelled = delay }.isLegal(calls))
    }
    let applied = Array(calls.dropLast()) + [.read(a, nil, by: 3, 4, 5)]
    let legal = ([nil, 0, 10, .max] as [Int?]).map { delay in
      LinearizabilityChecker.strict { $0.delayOfCancelled = delay }.isLegal(applied)
    }
    #expect(legal == [false, true, true, true])
  }
}
