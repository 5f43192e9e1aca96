@testable import ConformanceKit

// A short notation for calls: the operation, the task, and the steps at which it begins and ends.

extension HistoryCall {
  static func write(_ key: Int, _ value: Int, by task: Int, _ begin: Int, _ end: Int) -> HistoryCall {
    change(.write, [.write(key: key, value: value)], by: task, begin, end)
  }

  static func remove(_ key: Int, by task: Int, _ begin: Int, _ end: Int) -> HistoryCall {
    change(.remove, [.remove(key: key)], by: task, begin, end)
  }

  static func change(
    _ method: HistoryCall.Method, _ changes: [HistoryCall.Change], by task: Int, _ begin: Int, _ end: Int,
    threw failure: HistoryCall.Failure? = nil
  ) -> HistoryCall {
    HistoryCall(
      task: task, method: method, changes: changes, answer: failure.map { .threw($0) } ?? .done, begin: begin,
      end: end)
  }

  /// A read of one key that returned this value, or nil.
  static func read(_ key: Int, _ value: Int?, by task: Int, _ begin: Int, _ end: Int) -> HistoryCall {
    look(.read, [key], .found(value.map { [key: $0] } ?? [:]), by: task, begin, end)
  }

  static func exists(_ key: Int, _ exists: Bool, by task: Int, _ begin: Int, _ end: Int) -> HistoryCall {
    look(.exists, [key], .exist(exists ? [key] : []), by: task, begin, end)
  }

  /// A transaction that read these values, nil for absent, and then made these changes.
  static func transaction(
    _ read: [Int: Int?], _ changes: [HistoryCall.Change], by task: Int, _ begin: Int, _ end: Int,
    isRolledBack: Bool = false
  ) -> HistoryCall {
    let found = read.compactMapValues { $0 }
    return HistoryCall(
      task: task, method: .transaction, changes: changes, keys: read.keys.sorted(),
      answer: isRolledBack ? .rolledBack(found) : .found(found), begin: begin, end: end)
  }

  static func look(
    _ method: HistoryCall.Method, _ keys: [Int], _ answer: HistoryCall.Answer, by task: Int, _ begin: Int,
    _ end: Int
  ) -> HistoryCall {
    HistoryCall(task: task, method: method, keys: keys, answer: answer, begin: begin, end: end)
  }
}

extension LinearizabilityChecker {
  /// A checker for histories with three keys, initially absent.
  static func strict(_ relax: (inout AtomicityModel) -> Void = { _ in }) -> LinearizabilityChecker {
    var model = AtomicityModel(keyCount: 3)
    relax(&model)
    return LinearizabilityChecker(model: model, initial: [0, 0, 0])
  }
}
