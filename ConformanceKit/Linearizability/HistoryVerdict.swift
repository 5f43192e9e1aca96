/// The conviction of an engine for a history that it cannot have: which rule it breaks, and the proof.
struct HistoryConviction {
  /// The calls that cannot be ordered.
  let calls: [HistoryCall]
  let rule: ContractRule
  private let initial: [Int]

  /// Nil if the history is legal, or too wide to be judged.
  ///
  /// - Parameter ambiguous: The rule that is broken if both batches and reads of many may be to blame.
  init?(_ history: [HistoryCall], judge: HistoryJudge, ambiguous: ContractRule) {
    guard judge.isIllegal(history) else { return nil }
    // As a rule it has happened before it threw.
    let milder = Self.milder(judge, delayOfCancelled: 0)
    let isAboutCancellation = milder.isLegal(history)
    let left = TimelineShrinker(judge: judge, milderJudge: isAboutCancellation ? milder : nil).shrunk(history)
    // It may have happened later, which is too much to look for in all of a long history, but not in what is left of it.
    let mildest = Self.milder(judge, delayOfCancelled: .max)
    let culprits = Self.cancelledCalls(of: history, seenBy: left, mildest.model)
    let explained = (left + culprits).sorted { $0.begin < $1.begin }
    let isExplained = isAboutCancellation || (!culprits.isEmpty && mildest.isLegal(explained))
    calls = isExplained ? explained : left
    initial = judge.initial
    rule = isExplained ? .c4 : Self.rule(brokenBy: left, judge, ambiguous: ambiguous)
  }

  /// A clause that says what happened, and the timeline.
  var violation: Violation {
    let last = calls.filter(\.method.isLook).max { $0.end < $1.end }
    let those = calls.count == 1 ? "this call" : "these \(calls.count) calls in any order"
    let blamed = last.map { "; so \($0) of task \($0.task) is wrong" } ?? ""
    return Violation(
      "nothing explains \(those), each at one moment between its beginning and its end\(blamed)",
      rule: rule, proof: "\(HistoryTimeline(calls: calls, initial: initial))")
  }

  /// The judge to whom it is no crime that a cancelled call has happened, even in part, up to so many steps of the clock
  /// after it has thrown.
  private static func milder(_ judge: HistoryJudge, delayOfCancelled: Int) -> HistoryJudge {
    var model = judge.model
    model.delayOfCancelled = delayOfCancelled
    return HistoryJudge(model: model, initial: judge.initial)
  }

  /// The cancelled calls, not among those that are left, whose values somebody sees who is.
  private static func cancelledCalls(
    of history: [HistoryCall], seenBy left: [HistoryCall], _ model: AtomicityModel
  ) -> [HistoryCall] {
    let seen = left.flatMap { model.moves(of: $0, number: 0).flatMap(\.sights) }.filter { $0.value > 0 }
    return history.filter { call in
      guard case .threw(.cancelled) = call.answer, !left.contains(call) else { return false }
      return model.moves(of: call, number: 0).flatMap(\.writes).contains { write in
        seen.contains { $0.key == write.key && $0.value == write.value }
      }
    }
  }

  /// The rule without which the calls could be explained.
  private static func rule(
    brokenBy calls: [HistoryCall], _ judge: HistoryJudge, ambiguous: ContractRule
  ) -> ContractRule {
    func isLegal(_ relax: (inout AtomicityModel) -> Void) -> Bool {
      var model = judge.model
      relax(&model)
      return HistoryJudge(model: model, initial: judge.initial).isLegal(calls)
    }
    if let rule = ruleWithoutConcurrency(calls) { return rule }
    switch (isLegal { $0.batchesAreAtomic = false }, isLegal { $0.readsAreAtomic = false }) {
    case (true, true): return ambiguous
    case (true, false): return .w4
    case (false, true): return .r3
    case (false, false): return .c1
    }
  }

  /// If the calls came one after the other, the rule for the method that gave the last answer.
  private static func ruleWithoutConcurrency(_ calls: [HistoryCall]) -> ContractRule? {
    let calls = calls.sorted { $0.begin < $1.begin }
    guard zip(calls, calls.dropFirst()).allSatisfy({ !$0.overlaps($1) }) else { return nil }
    switch calls.last(where: \.method.isLook)?.method {
    case .read: return .w1
    case .exists, .keysExist: return .l1
    case .readMany, .readManyWithKeys: return .r2
    case .readAll, .readAllData, .readAllEntries: return .r3
    case .allKeys: return .k3
    case .keyCount: return .l2
    case .scan: return .r5
    default: return nil
    }
  }
}
