import TestFixtures
import Testing

@testable import ConformanceKit

/// Tries every order, except equivalent ones: too slow for more than a few calls, and too simple to be wrong.
private func isLegalByForce(_ effects: [Effect], _ initial: [Int]) -> Bool {
  var tried: Set<[[Int]]> = []
  func isLegal(_ rest: [Int], _ store: [Int]) -> Bool {
    if rest.allSatisfy({ !effects[$0].isOutcomeKnown }) { return true }
    guard tried.insert([rest, store]).inserted else { return false }
    let firstEnd = rest.map { effects[$0].end }.min() ?? .max
    for index in rest where effects[index].begin < firstEnd {
      let effect = effects[index]
      let others = rest.filter { $0 != index }
      if !effect.isOutcomeKnown, isLegal(others, store) { return true }
      let isRight =
        effect.count.map { $0 == store.count { $0 != Cell.absent } }
        ?? effect.observations.allSatisfy {
          $0.value == store[$0.key] || ($0.value == Cell.present && store[$0.key] != Cell.absent)
        }
      guard isRight else { continue }
      var next = store
      for cell in effect.writes { next[cell.key] = cell.value }
      if isLegal(others, next) { return true }
    }
    return false
  }
  return isLegal(Array(effects.indices), initial)
}

@Suite("The search agrees with trying every order")
struct BruteForceTests {
  static let kinds: [(String, [HistoryCall.Method])] = [
    ("one key at a time", [.read, .read, .exists, .write, .write, .remove]),
    ("batches", [.read, .read, .exists, .write, .remove, .writeMany, .apply, .removeMany, .removeAll]),
    (
      "reads of many", [.read, .write, .write, .remove, .readMany, .keysExist, .readAll, .allKeys, .keyCount]
    ),
    (
      "transactions",
      [.read, .read, .exists, .write, .remove, .transaction, .transaction, .transaction, .transaction]
    ),
    (
      "everything",
      [.read, .exists, .write, .remove, .writeMany, .apply, .readMany, .readAll, .keyCount, .transaction]
    ),
  ]

  @Test("Thousands of small histories get the same result", arguments: 0..<5, [false, true])
  func agreement(kind: Int, valuesAreFew: Bool) {
    let simulation = SimulatedHistory(
      tasks: 4, keyCount: 2 + kind % 2, methods: Self.kinds[kind].1, valuesAreFew: valuesAreFew)
    var legal = 0
    let count = TestRun.count(200, exhaustive: 600)
    for seed in 0..<UInt64(count) {
      var history = simulation.calls(4 + Int(seed % 3), seed: seed)
      if seed / 32 % 2 == 0 { history = history.falsified(seed: seed) }
      if seed % 2 == 0 {
        history = history.withFailure(seed / 4 % 2 == 0 ? .unclear : .cancelled, seed: seed)
      }
      var model = AtomicityModel(keyCount: simulation.keyCount)
      model.batchesAreAtomic = seed % 7 != 0
      model.readsAreAtomic = seed % 11 != 0
      model.transactionsAreAtomic = seed % 13 != 0
      model.delayOfCancelled = [nil, 0, 3, .max][Int(seed / 8) % 4]
      let initial = (0..<simulation.keyCount).map { seed % 4 == 0 ? 0 : $0 + Int(seed % 3) }
      let effects = history.enumerated().flatMap { model.effects(of: $0.element, number: $0.offset) }
      let expected = isLegalByForce(effects, initial)
      legal += expected ? 1 : 0
      let checker = LinearizabilityChecker(model: model, initial: initial)
      #expect(
        checker.isLegal(history) == expected,
        "seed \(seed): \n\(HistoryTimeline(calls: history, initial: initial))")
      if !expected { expectEvidence(history, checker) }
    }
    #expect(
      (count / 10...count * 9 / 10).contains(legal), "\(legal) of \(count) were legal, which says little")
  }

  /// The result of shrinking is illegal, is a part of the history, and needs each of its reads.
  private func expectEvidence(_ history: [HistoryCall], _ checker: LinearizabilityChecker) {
    let evidence = TimelineShrinker(checker: checker).shrunk(history)
    #expect(checker.isIllegal(evidence))
    #expect(Set(evidence.map(\.begin)).isSubset(of: history.map(\.begin)))
    for (index, call) in evidence.enumerated() where call.isObservation {
      var shorter = evidence
      shorter.remove(at: index)
      #expect(checker.isLegal(shorter))
    }
  }
}

@Suite("The search is fast")
struct SearchBudgetTests {
  @Test("The work grows linearly with the number of calls", arguments: [false, true])
  func linear(hasQueue: Bool) {
    let simulation = SimulatedHistory(writers: 8, hasQueue: hasQueue)
    let checker = LinearizabilityChecker(
      model: AtomicityModel(keyCount: 6), initial: Array(repeating: 0, count: 6))
    let (short, long) = (simulation.calls(1_000, seed: 1), simulation.calls(4_000, seed: 1))
    let (one, four) = (checker.check(short), checker.check(long))
    #expect(one.outcome == .legal && four.outcome == .legal)
    #expect(four.examined < 6 * max(one.examined, 1_000), "\(one.examined) and \(four.examined)")
  }

  @Test("Six tasks that write and wait in a queue leave few configurations to check")
  func narrow() {
    var simulation = SimulatedHistory(writers: 6, hasQueue: true)
    simulation.methods = [.read, .write, .write, .write, .writeMany, .apply]
    let checker = LinearizabilityChecker(
      model: AtomicityModel(keyCount: 6), initial: Array(repeating: 0, count: 6))
    let result = checker.check(simulation.calls(2_000, seed: 3))
    #expect(result.outcome == .legal)
    #expect(result.examined < 2_000 * 100, "\(result.examined)")
  }

  @Test("A history with too many orders is undecided, after a bounded search")
  func bounded() {
    // Sixty tasks repeatedly remove and write keys at the same time, with few values, and nothing is read.
    var simulation = SimulatedHistory(
      tasks: 60, writers: 60, keyCount: 10, valuesAreFew: true, hasQueue: true)
    simulation.methods = [.apply, .removeMany, .writeMany]
    let checker = LinearizabilityChecker(
      model: AtomicityModel(keyCount: 10), initial: Array(repeating: 0, count: 10))
    #expect(!checker.isIllegal(simulation.calls(200, seed: 1)))
  }
}
