#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Determines which rule a sequence breaks.
///
/// A wrong result alone does not determine the rule: its cause may be the method that returned it, or an earlier
/// change. So the same sequence is repeated with `read(key:)` instead of the last call. If that result is wrong too, it
/// is the better evidence.
struct SequenceDiagnosis {
  let attempt: ([Command]) async throws -> FailedSequence?

  func diagnose(_ failure: FailedSequence) async throws -> (rule: ContractRule, evidence: FailedSequence) {
    let rule = failure.finding.rule
    switch failure.finding.kind {
    case .time where failure.operations.lastChange?.isReopening == true: return (.w6, failure)
    case .contents, .body: break
    default: return (rule, failure)
    }
    if let rule = failure.ruleOfState { return (rule, failure) }
    if failure.namesUnknownKey { return (.k3, failure) }
    for key in failure.validKeys {
      let reading = Array(failure.operations.dropLast()) + [.ask(.read(key))]
      guard let wrong = try await attempt(reading), wrong.operations.count == reading.count else { continue }
      if let rule = wrong.ruleOfState { return (rule, wrong) }
    }
    return (rule, failure)
  }
}

extension [Command] {
  fileprivate var lastChange: Command? { last { $0.steps != nil || $0.isReopening } }
}

extension Command {
  fileprivate var isReopening: Bool { if case .reopen = self { true } else { false } }
}

extension FailedSequence {
  /// Each valid key of the calls, once.
  fileprivate var validKeys: [CacheKey] {
    var seen: Set<CacheKey> = []
    return operations.flatMap(\.keys).filter { $0.isValid && seen.insert($0).inserted }
  }

  /// Whether the result contains a key that no call uses.
  fileprivate var namesUnknownKey: Bool {
    let known = Set(operations.flatMap(\.keys))
    switch answer {
    case .keys(let keys): return !known.isSuperset(of: keys)
    case .pairs(let pairs): return !known.isSuperset(of: pairs.map(\.key))
    case .entries(let entries): return !known.isSuperset(of: entries.map(\.key))
    default: return false
    }
  }

  /// The rule that is broken by the last change before a wrong result of `read(key:)`; nil if the last call is another
  /// one.
  fileprivate var ruleOfState: ContractRule? {
    guard case .ask(.read(let key)) = operations.last, case .value(let found) = answer else { return nil }
    guard let change = operations.lastChange else { return .r1 }
    if change.isReopening { return .w6 }
    if case .transaction(_, let isThrowing) = change { return isThrowing || change.isRefused ? .t3 : .t1 }
    if change.isRefused { return change.keys.count > 1 ? .w4 : .k1 }
    if let found {
      let writers = operations.flatMap { ($0.steps ?? []).compactMap(\.entry) }
        .filter { $0.value.data == found }.map(\.key)
      if writers.isEmpty { return .v2 }
      if !writers.contains(key) { return .k2 }
    }
    if case .removeAll = change { return .d2 }
    if case .apply = change { return .w5 }
    // A call with other keys has changed this one.
    if !change.keys.contains(key) { return .k2 }
    switch change {
    case .remove, .removeMany: return .d1
    case .writeMany where change.keys.count > Set(change.keys).count,
      .writeEntries where change.keys.count > Set(change.keys).count:
      return .w3
    default: return found == nil && model[key]?.data.isEmpty == true ? .v1 : .w1
    }
  }
}

extension CommandStep {
  fileprivate var entry: CommandEntry? {
    switch self {
    case .write(let entry): entry
    case .writeEntry(let dated): dated.entry
    case .remove, .removeAll: nil
    }
  }
}
