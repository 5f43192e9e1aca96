/// The engine's promises about concurrent calls: which of them take effect at one moment.
struct AtomicityModel: Sendable {
  let keyCount: Int
  /// Whether a batch is one change, or as many as it has parts, in any order (rule W4).
  var batchesAreAtomic = true
  /// Whether a read of many returns one snapshot, or one for each key (rule R3).
  var readsAreAtomic = true
  /// Whether a transaction reads and writes at one moment, or at as many as it has keys, in any order (rule T1).
  var transactionsAreAtomic = true
  /// For how many steps of the clock after its end a cancelled call may happen all the same, even in part, as rule C4
  /// does not allow. Nil if it may not.
  var delayOfCancelled: Int?

  /// The effects that the call is made of, each of which takes effect at one moment. None if the call says nothing.
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
    // It is unknown whether it takes effect, and until when.
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

  /// What the changes leave under each of their keys.
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

  /// A transaction that has read and written: one effect with both.
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
      // A key count at an unspecified moment cannot be wrong.
      if !readsAreAtomic { return [] }
      return [Effect(call: number, begin: call.begin, end: call.end, count: count)]
    case .found(let values), .rolledBack(let values):
      observations = call.keys.map { Cell(key: $0, value: values[$0] ?? Cell.absent) }
    case .exist(let keys):
      observations = call.keys.map { Cell(key: $0, value: keys.contains($0) ? Cell.present : Cell.absent) }
    }
    return (isOneMoment(call.method) ? [observations] : observations.map { [$0] }).map {
      Effect(call: number, begin: call.begin, end: call.end, observations: $0)
    }
  }

  /// Whether the call returns one snapshot. Some methods have defaults that cannot, however well the others
  /// are made: `readAllEntries()` and `readEntries(keys:)`, which read the times after the values, and
  /// `keysExist(_:)`, which asks one by one, as only an engine with atomic batches must not (rule W4).
  private func isOneMoment(_ method: HistoryCall.Method) -> Bool {
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
  /// There is no entry.
  static let absent = 0
  /// There is an entry, with a value that is not read.
  static let present = -1
  /// A value that no entry ever has.
  static let nonsense = -2

  var key: Int
  var value: Int
}

/// An operation that takes effect at one moment: a change of some keys, a read of some, or a read followed by
/// a change.
struct Effect: Sendable {
  /// The call that it is a part of.
  let call: Int
  let begin: Int
  /// When it takes effect at the latest; the greatest number if that is unknown.
  let end: Int
  /// Whether it takes effect at all.
  var isOutcomeKnown = true
  var writes: [Cell] = []
  var observations: [Cell] = []
  /// The number of keys that was seen.
  var count: Int?

  /// Whether it changes nothing.
  var isRead: Bool { writes.isEmpty }

  /// The keys that it has to do with, unless it counts them, which has to do with all.
  var keys: [Int] { (writes + observations).map(\.key) }
}
