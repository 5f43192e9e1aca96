/// Finds the few calls of an illegal history that cannot be ordered, regardless of the others.
///
/// Only what cannot make a legal history illegal is taken away: reads, and changes that nobody who is left looks at. So
/// what is left proves by itself that the engine is wrong.
struct TimelineShrinker {
  let checker: LinearizabilityChecker

  /// The smallest illegal part that taking calls away leads to, in the order in which the calls began.
  func shrunk(_ calls: [HistoryCall]) -> [HistoryCall] {
    var left = upToTheFault(calls.sorted { $0.begin < $1.begin })
    guard checker.isIllegal(left) else { return left }
    var count: Int
    repeat {
      count = left.count
      left = thinned(left) { call, _ in call.isObservation }
      left = thinned(left) { call, rest in rest().canDo(without: call) }
    } while left.count < count
    return left
  }

  /// The calls without those that come after the search has found out, of which no read that stays sees anything.
  private func upToTheFault(_ calls: [HistoryCall]) -> [HistoryCall] {
    guard case .illegal(let number) = checker.check(calls).outcome else { return calls }
    let end = calls[number].end
    let beginning = calls.filter { $0.method.isRead ? $0.end <= end : $0.begin < end }
      // A transaction that goes on may have seen what has been taken away.
      .map { $0.method == .transaction && $0.end > end && !$0.isObservation ? $0.withoutObservations : $0 }
      .filter { $0.end <= end || !$0.isObservation }
    // It may have known what comes.
    return checker.isIllegal(beginning) ? beginning : calls
  }

  /// Takes calls away that may go, first many at a time, while the history stays illegal.
  private func thinned(
    _ calls: [HistoryCall], where mayGo: (HistoryCall, () -> Remainder) -> Bool
  ) -> [HistoryCall] {
    var left = calls
    var size = left.count
    while size > 0 {
      var start = 0
      while start < left.count {
        let chunk = start..<min(start + size, left.count)
        // Looks of the chunk that stay see what its changes do.
        lazy var remainder = Remainder(
          checker.model,
          left[..<chunk.lowerBound] + left[chunk].filter(\.hasObservations).map(\.withoutChanges)
            + left[chunk.upperBound...])
        let kept = left[chunk].filter { call in !mayGo(call) { remainder } }
        if kept.count < chunk.count {
          let shorter = Array(left[..<chunk.lowerBound] + kept + left[chunk.upperBound...])
          if checker.isIllegal(shorter) {
            left = shorter
            start += kept.count
            continue
          }
        }
        start += size
      }
      size /= 2
    }
    return left
  }
}

/// What is left of a history when some calls are taken away.
private struct Remainder {
  private struct Key {
    /// What somebody sees of the key.
    var seen: Set<Int> = []
    var firstLook = Int.max
    /// When the last change begins that has ended before anybody looks.
    var lastUnseenChange = -1
  }

  private let model: AtomicityModel
  private var keys: [Key]

  init(_ model: AtomicityModel, _ calls: ArraySlice<HistoryCall>) {
    self.model = model
    keys = Array(repeating: Key(), count: model.keyCount)
    let effects = calls.flatMap { model.effects(of: $0, number: 0) }
    for effect in effects {
      let observations =
        effect.count == nil
        ? effect.observations
        : keys.indices.flatMap { [Cell(key: $0, value: Cell.present), Cell(key: $0, value: Cell.absent)] }
      for observation in observations {
        keys[observation.key].seen.insert(observation.value)
        keys[observation.key].firstLook = min(keys[observation.key].firstLook, effect.begin)
      }
    }
    for effect in effects where !effect.isRead && effect.isOutcomeKnown {
      for cell in effect.writes where effect.end < keys[cell.key].firstLook {
        keys[cell.key].lastUnseenChange = max(keys[cell.key].lastUnseenChange, effect.begin)
      }
    }
  }

  /// Whether nobody sees what the call does: no read is at what it leaves, or another change has come between.
  func canDo(without call: HistoryCall) -> Bool {
    if call.isObservation { return false }
    return model.effects(of: call, number: 0).allSatisfy { effect in
      effect.writes.allSatisfy { cell in
        let key = keys[cell.key]
        if cell.value > 0, key.seen.contains(cell.value) { return false }
        if effect.end < key.lastUnseenChange { return true }
        return !key.seen.contains(cell.value == Cell.absent ? Cell.absent : Cell.present)
      }
    }
  }
}
