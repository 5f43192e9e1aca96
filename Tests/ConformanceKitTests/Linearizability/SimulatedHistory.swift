import StockroomCore
import StockroomKitSupport

@testable import ConformanceKit

/// Histories of a simulated engine, which are certainly legal.
struct SimulatedHistory {
  var tasks = 16
  /// How many of the tasks make changes.
  var writers = 16
  var keyCount = 6
  var methods: [HistoryCall.Method] = [
    .read, .read, .read, .exists, .write, .write, .remove, .writeMany, .readAll,
  ]
  var valuesAreFew = false
  /// Whether changes wait for each other in a queue, as in a database with one writer.
  var hasQueue = false

  /// - Returns: The calls in the order in which they ended.
  func calls(_ count: Int, seed: UInt64) -> [HistoryCall] {
    var random = SeededRandom(seed: seed)
    var store = [Int](repeating: 0, count: keyCount)
    var (time, value) = (0, 0)
    var calls: [HistoryCall] = []
    var open = [Open?](repeating: nil, count: tasks)
    var queue: [Int] = []
    while calls.count < count {
      let task = random.next(upTo: tasks)
      guard let call = open[task] else {
        let choice = task < writers ? methods : methods.filter(\.isRead)
        open[task] = begin(choice[random.next(upTo: choice.count)], at: time, &value, &random)
        if let call = open[task], !call.changes.isEmpty { queue.append(task) }
        time += 1
        continue
      }
      if let answer = call.answer {
        calls.append(call.ended(by: task, answer, at: time))
        open[task] = nil
        time += 1
      } else if call.changes.isEmpty || !hasQueue || queue.first == task {
        open[task]?.answer = perform(call, on: &store)
        queue.removeAll { $0 == task }
      }
    }
    // Effects must be recorded, because other calls may have observed them.
    for (task, call) in open.enumerated() {
      guard let call, let answer = call.answer else { continue }
      calls.append(call.ended(by: task, answer, at: time))
      time += 1
    }
    return calls
  }

  private struct Open {
    let method: HistoryCall.Method
    let changes: [HistoryCall.Change]
    let keys: [Int]
    let begin: Int
    var answer: HistoryCall.Answer?

    func ended(by task: Int, _ answer: HistoryCall.Answer, at time: Int) -> HistoryCall {
      HistoryCall(
        task: task, method: method, changes: changes, keys: keys, answer: answer, begin: begin, end: time)
    }
  }

  private func begin(
    _ method: HistoryCall.Method, at time: Int, _ value: inout Int, _ random: inout SeededRandom
  ) -> Open {
    let key = random.next(upTo: keyCount)
    let others = [key, (key + 1) % keyCount]
    func newValue() -> Int {
      value += 1
      return valuesAreFew ? 1 + random.next(upTo: 2) : value
    }
    var (changes, keys): ([HistoryCall.Change], [Int]) = ([], [])
    switch method {
    case .write: changes = [.write(key: key, value: newValue())]
    case .remove: changes = [.remove(key: key)]
    case .writeMany: changes = others.map { .write(key: $0, value: newValue()) }
    case .transaction:
      keys = others
      changes =
        switch random.next(upTo: 4) {
        case 0: []
        case 1: [.remove(key: key)]
        case 2: [.write(key: key, value: newValue())]
        default: [.write(key: (key + 2) % keyCount, value: newValue()), .write(key: key, value: newValue())]
        }
    case .apply: changes = [.remove(key: others[0]), .write(key: others[1], value: newValue())]
    case .removeMany: changes = others.map { .remove(key: $0) }
    case .removeAll: changes = [.removeAll]
    case .read, .exists: keys = [key]
    case .readMany, .keysExist: keys = others
    default: keys = Array(0..<keyCount)
    }
    return Open(method: method, changes: changes, keys: keys, begin: time)
  }

  private func perform(_ call: Open, on store: inout [Int]) -> HistoryCall.Answer {
    let before = store
    for change in call.changes {
      switch change {
      case .write(let key, let value): store[key] = value
      case .remove(let key): store[key] = 0
      case .removeAll: store = store.map { _ in 0 }
      }
    }
    let found = call.keys.filter { store[$0] != 0 }
    switch call.method {
    case .transaction:
      let read = call.keys.filter { before[$0] != 0 }.map { ($0, before[$0]) }
      return .found(Dictionary(read) { first, _ in first })
    case .keyCount: return .count(found.count)
    case .exists, .keysExist, .allKeys: return .exist(Set(found))
    default:
      return call.changes.isEmpty
        ? .found(Dictionary(uniqueKeysWithValues: found.map { ($0, store[$0]) })) : .done
    }
  }
}

extension [HistoryCall] {
  /// The history with one result changed. It may or may not still be legal.
  func falsified(seed: UInt64) -> [HistoryCall] {
    var random = SeededRandom(seed: seed)
    let reads = indices.filter {
      self[$0].hasObservations && !self[$0].keys.isEmpty || self[$0].changes.isEmpty
    }
    guard !reads.isEmpty else { return self }
    var calls = self
    let index = reads[random.next(upTo: reads.count)]
    let call = calls[index]
    let answer: HistoryCall.Answer
    switch call.answer {
    case .found(var values):
      let key = call.keys[random.next(upTo: call.keys.count)]
      values[key] = random.next(upTo: 4) == 0 ? nil : 1 + random.next(upTo: 4)
      answer = .found(values)
    case .exist(let keys):
      answer = .exist(keys.symmetricDifference([call.keys[random.next(upTo: call.keys.count)]]))
    case .count(let count): answer = .count(Swift.max(0, count + random.next(upTo: 3) - 1))
    default: return self
    }
    calls[index] = HistoryCall(
      task: call.task, method: call.method, changes: call.changes, keys: call.keys, answer: answer,
      begin: call.begin, end: call.end)
    return calls
  }

  /// The history with a call that threw: a change that has happened, a transaction that was rolled back, or, instead of
  /// a read, a change that has not happened.
  func withFailure(_ failure: HistoryCall.Failure, seed: UInt64) -> [HistoryCall] {
    var random = SeededRandom(seed: seed)
    guard !isEmpty else { return self }
    var calls = self
    let index = random.next(upTo: count)
    let call = calls[index]
    let isRead = call.changes.isEmpty
    if case .found(let values) = call.answer, call.method == .transaction, random.next(upTo: 2) == 0 {
      calls[index] = HistoryCall(
        task: call.task, method: call.method, changes: call.changes, keys: call.keys,
        answer: .rolledBack(values), begin: call.begin, end: call.end)
      return calls
    }
    calls[index] = HistoryCall(
      task: call.task, method: isRead ? .remove : call.method,
      changes: isRead ? [.remove(key: call.keys.first ?? 0)] : call.changes, answer: .threw(failure),
      begin: call.begin, end: call.end)
    return calls
  }
}
