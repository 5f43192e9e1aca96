/// The atomicity of concurrent calls that the engine promises.
struct AtomicityModel: Sendable {
  let keyCount: Int
  /// Whether a batch is one change, or separate changes of its parts, in any order (rule W4).
  var batchesAreAtomic = true
  /// Whether a read of many keys returns one snapshot, or one for each key (rule R3).
  var readsAreAtomic = true
  /// Whether a transaction is one atomic effect, or one for each of its keys, in any order (rule T1).
  var transactionsAreAtomic = true
  /// For how many clock steps after its end a cancelled call may still take effect, even in part. Rule C4 does not
  /// allow that. Nil if it may not.
  var delayOfCancelled: Int?

  /// The effects of the call, each of which is atomic. None if the call's result says nothing.
  func effects(of call: HistoryCall, number: Int) -> [Effect] {
    if call.isObservation { return observations(of: call, number: number) }
    if call.method == .transaction, call.hasObservations { return committed(call, number: number) }
    let end: Int
    switch call.answer {
    case .threw(.refused): return []
    case .threw(.cancelled):
      guard let delayOfCancelled else { return [] }
      let (sum, isEndless) = call.end.addingReportingOverflow(delayOfCancelled)
      end = isEndless ? .max : sum
    // Whether and until when it takes effect is unknown.
    case .threw: end = .max
    default: end = call.end
    }
    let cells = cells(of: call.changes)
    let isAtomic = call.method == .transaction ? transactionsAreAtomic : batchesAreAtomic
    let isWhole = isAtomic && !(call.answer == .threw(.cancelled))
    return (isWhole ? [cells] : cells.map { [$0] }).map {
      Effect(call: number, begin: call.begin, end: end, isOutcomeKnown: call.answer == .done, writes: $0)
    }
  }

  /// The final values of the changed keys.
  private func cells(of changes: [HistoryCall.Change]) -> [Cell] {
    var writes: [Int: Int] = [:]
    for change in changes {
      switch change {
      case .write(let key, let value): writes[key] = value
      case .remove(let key): writes[key] = Cell.absent
      case .removeAll: for key in 0..<keyCount { writes[key] = Cell.absent }
      }
    }
    return writes.sorted { $0.key < $1.key }.map { Cell(key: $0.key, value: $0.value) }
  }

  /// A committed transaction that reads and writes: a single effect with both.
  private func committed(_ call: HistoryCall, number: Int) -> [Effect] {
    let observed = observations(of: call, number: number)
    let written = cells(of: call.changes).map {
      Effect(call: number, begin: call.begin, end: call.end, writes: [$0])
    }
    guard transactionsAreAtomic else { return observed + written }
    return [
      Effect(
        call: number, begin: call.begin, end: call.end, writes: written.flatMap(\.writes),
        observations: observed.flatMap(\.observations))
    ]
  }

  private func observations(of call: HistoryCall, number: Int) -> [Effect] {
    let observations: [Cell]
    switch call.answer {
    case .threw, .done: return []
    case .nonsense:
      let key = call.keys.first ?? 0
      return [
        Effect(
          call: number, begin: call.begin, end: call.end, observations: [Cell(key: key, value: Cell.nonsense)]
        )
      ]
    case .count(let count):
      // A key count that is not a snapshot cannot be judged.
      if !readsAreAtomic { return [] }
      return [Effect(call: number, begin: call.begin, end: call.end, count: count)]
    case .found(let values), .rolledBack(let values):
      observations = call.keys.map { Cell(key: $0, value: values[$0] ?? Cell.absent) }
    case .exist(let keys):
      observations = call.keys.map { Cell(key: $0, value: keys.contains($0) ? Cell.present : Cell.absent) }
    }
    return (isSnapshot(call.method) ? [observations] : observations.map { [$0] }).map {
      Effect(call: number, begin: call.begin, end: call.end, observations: $0)
    }
  }

  /// Whether the method returns one snapshot. Some default implementations do not, whatever the engine's own methods
  /// do: `readAllEntries()` and `readEntries(keys:)` read the times after the values, and `keysExist(_:)` reads one key
  /// after the other, which is only forbidden to an engine with atomic batches (rule W4).
  private func isSnapshot(_ method: HistoryCall.Method) -> Bool {
    switch method {
    case .read, .exists: true
    case .transaction: transactionsAreAtomic
    case .readAllEntries, .readEntries: false
    case .keysExist: readsAreAtomic && batchesAreAtomic
    default: readsAreAtomic
    }
  }
}

/// A key and its value.
struct Cell: Sendable, Hashable {
  /// No entry exists.
  static let absent = 0
  /// An entry exists. Its value does not matter.
  static let present = -1
  /// A value that is never written.
  static let nonsense = -2

  var key: Int
  var value: Int
}

/// An atomic operation: a change of some keys, a read of some, or a read followed by a change.
struct Effect: Sendable {
  /// The number of the call.
  let call: Int
  let begin: Int
  /// The latest time at which it takes effect; the greatest number if that is unknown.
  let end: Int
  /// Whether it certainly takes effect. If not, it may also never take effect.
  var isOutcomeKnown = true
  var writes: [Cell] = []
  var observations: [Cell] = []
  /// The number of keys that was read.
  var count: Int?

  /// Whether it changes nothing.
  var isRead: Bool { writes.isEmpty }

  /// The keys that it involves. A count of the keys involves all.
  var keys: [Int] { (writes + observations).map(\.key) }
}
