#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Tells which rule a history breaks.
///
/// A wrong answer alone does not: the method that gave it may be at fault, or the call before it that was to change
/// something. So the same history is made once more with `read(key:)` in place of the last call.
struct HistoryDiagnosis {
  let attempt: ([HistoryOperation]) async throws -> HistoryFailure?

  func rule(of failure: HistoryFailure) async throws -> ContractRule {
    let finding = failure.finding
    switch finding.kind {
    case .time where failure.operations.lastChange?.isReopening == true: return .w6
    case .contents: break
    default: return finding.rule
    }
    if let rule = failure.ruleOfState { return rule }
    let before = Array(failure.operations.dropLast())
    var asked: Set<CacheKey> = []
    let keys = failure.operations.flatMap(\.keys).filter { $0.isValid && asked.insert($0).inserted }
    let wrong = try await attempt(before + keys.map { .ask(.read($0)) })
    guard let wrong, wrong.operations.count > before.count, let rule = wrong.ruleOfState else {
      return finding.rule
    }
    return rule
  }
}

extension [HistoryOperation] {
  fileprivate var lastChange: HistoryOperation? { last { $0.steps != nil || $0.isReopening } }
}

extension HistoryOperation {
  fileprivate var isReopening: Bool { if case .reopen = self { true } else { false } }
}

extension HistoryFailure {
  /// The rule that is broken by the last change before a wrong answer of `read(key:)`; nil if the last call is
  /// another one.
  fileprivate var ruleOfState: ContractRule? {
    guard case .ask(.read(let key)) = operations.last, case .value(let found) = answer else { return nil }
    guard let change = operations.lastChange else { return .r1 }
    if change.isReopening { return .w6 }
    if change.isRefused { return change.keys.count > 1 ? .w4 : .k1 }
    if let found {
      let writers = operations.flatMap { ($0.steps ?? []).compactMap(\.entry) }
        .filter { $0.value.data == found }.map(\.key)
      if writers.isEmpty { return .v2 }
      if !writers.contains(key) { return .k2 }
    }
    if case .removeAll = change { return .d2 }
    if case .apply = change { return .w5 }
    // A call that is about other keys has changed this one.
    if !change.keys.contains(key) { return .k2 }
    switch change {
    case .remove, .removeMany: return .d1
    case .writeMany(let entries) where entries.count > Set(entries.map(\.key)).count: return .w3
    default: return found == nil && model[key]?.data.isEmpty == true ? .v1 : .w1
    }
  }
}

extension HistoryStep {
  fileprivate var entry: HistoryEntry? { if case .write(let entry) = self { entry } else { nil } }
}
