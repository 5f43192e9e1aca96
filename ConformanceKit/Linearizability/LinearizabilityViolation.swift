/// A history that is not linearizable: which rule it breaks, and the evidence.
struct LinearizabilityViolation {
  /// The calls that cannot be ordered.
  let calls: [HistoryCall]
  let rule: ContractRule
  private let initial: [Int]

  /// Nil if the history is legal, or has too many orders to be decided.
  ///
  /// - Parameter ambiguous: The rule to report if either batches or reads of many keys may be the cause.
  init?(_ history: [HistoryCall], checker: LinearizabilityChecker, ambiguous: ContractRule) {
    guard checker.isIllegal(history) else { return nil }
    initial = checker.initial
    // The remaining calls decide the rule, since a long history may have too many orders to search.
    let left = TimelineShrinker(checker: checker).shrunk(history)
    let ruleOfMethod = Self.ruleWithoutConcurrency(left)
    if left.contains(where: { $0.method == .transaction }), Self.isTransaction(toBlameFor: left, checker) {
      (calls, rule) = (left, .t1)
    } else if ruleOfMethod == nil,
      let rule = Self.ruleOfAtomicity(brokenBy: left, checker, ambiguous: ambiguous)
    {
      (calls, self.rule) = (left, rule)
    } else if let explained = Self.explained(left, byCancelledCallsOf: history, checker) {
      (calls, rule) = (explained, .c4)
    } else {
      (calls, rule) = (left, ruleOfMethod ?? .c1)
    }
  }

  /// The failure text and the timeline.
  var violation: Violation {
    let last = calls.filter(\.hasObservations).max { $0.end < $1.end }
    let those = calls.count == 1 ? "this call" : "these \(calls.count) calls"
    let blamed = last.map { "; so \($0) of task \($0.task) is wrong" } ?? ""
    return Violation(
      "no sequential order explains the results of \(those)\(blamed)",
      rule: rule, evidence: "\(HistoryTimeline(calls: calls, initial: initial))")
  }

  /// The calls, plus as few cancelled calls as possible that explain the results if they have taken effect after all,
  /// even in part. Nil if there are none.
  ///
  /// A cancelled call usually takes effect before it throws. A value that only a cancelled call has written proves that
  /// the call took effect, at whatever time.
  private static func explained(
    _ left: [HistoryCall], byCancelledCallsOf history: [HistoryCall], _ checker: LinearizabilityChecker
  ) -> [HistoryCall]? {
    let observations = Set(left.flatMap { checker.model.effects(of: $0, number: 0).flatMap(\.observations) })
    for (delay, seen) in [(0, observations), (.max, observations.filter { $0.value > 0 })] {
      var relaxed = checker.model
      relaxed.delayOfCancelled = delay
      let relaxedChecker = LinearizabilityChecker(model: relaxed, initial: checker.initial)
      // If the whole history remains illegal, the explanation of these calls is a coincidence.
      if delay == 0, relaxedChecker.isIllegal(history) { continue }
      var causes = history.filter { call in
        call.answer == .threw(.cancelled) && !left.contains(call)
          && relaxed.effects(of: call, number: 0).flatMap(\.writes).contains { $0.isObserved(in: seen) }
      }
      func isExplained(by causes: [HistoryCall]) -> Bool {
        relaxedChecker.isLegal((left + causes).sorted { $0.begin < $1.begin })
      }
      guard isExplained(by: causes) else { continue }
      for cause in causes {
        let others = causes.filter { $0 != cause }
        if isExplained(by: others) { causes = others }
      }
      return (left + causes).sorted { $0.begin < $1.begin }
    }
    return nil
  }

  /// Whether the transactions are the cause: the calls would be legal if transactions did not have to be atomic, or
  /// without the committed transactions.
  private static func isTransaction(
    toBlameFor calls: [HistoryCall], _ checker: LinearizabilityChecker
  ) -> Bool {
    var model = checker.model
    model.transactionsAreAtomic = false
    if LinearizabilityChecker(model: model, initial: checker.initial).isLegal(calls) { return true }
    // If a call was cancelled, it may be the cause instead.
    return !calls.contains { $0.answer == .threw(.cancelled) }
      && checker.isLegal(calls.filter { $0.method != .transaction || $0.answer.isUncertain })
  }

  /// The rule about batches or reads of many keys without which the calls would be legal, if there is one.
  private static func ruleOfAtomicity(
    brokenBy calls: [HistoryCall], _ checker: LinearizabilityChecker, ambiguous: ContractRule
  ) -> ContractRule? {
    func isLegal(_ relax: (inout AtomicityModel) -> Void) -> Bool {
      var model = checker.model
      relax(&model)
      return LinearizabilityChecker(model: model, initial: checker.initial).isLegal(calls)
    }
    switch (isLegal { $0.batchesAreAtomic = false }, isLegal { $0.readsAreAtomic = false }) {
    case (true, true): return ambiguous
    case (true, false): return .w4
    case (false, true): return .r3
    case (false, false): return nil
    }
  }

  /// If the calls are sequential, the rule of the method that returned the last result.
  private static func ruleWithoutConcurrency(_ calls: [HistoryCall]) -> ContractRule? {
    let calls = calls.sorted { $0.begin < $1.begin }
    guard zip(calls, calls.dropFirst()).allSatisfy({ !$0.overlaps($1) }) else { return nil }
    switch calls.last(where: \.hasObservations)?.method {
    case .transaction: return .t1
    case .read: return .w1
    case .exists, .keysExist: return .l1
    case .readMany, .readManyWithKeys: return .r2
    case .readAll, .readAllData, .readAllEntries: return .r3
    case .readEntries: return .r6
    case .allKeys: return .k3
    case .keyCount: return .l2
    case .scan: return .r5
    default: return nil
    }
  }
}

extension Cell {
  /// Whether a call has observed this value of the key, or that the key exists.
  fileprivate func isObserved(in observations: Set<Cell>) -> Bool {
    observations.contains(self)
      || (value != Cell.absent && observations.contains(Cell(key: key, value: Cell.present)))
  }
}
