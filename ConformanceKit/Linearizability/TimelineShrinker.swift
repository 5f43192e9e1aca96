/// Finds a few calls of an illegal history that cannot be ordered, regardless of the others.
///
/// It only removes calls without which a legal history stays legal: reads, and changes that no remaining call observes.
/// So the remaining calls alone prove that the engine is wrong.
struct TimelineShrinker {
  let checker: LinearizabilityChecker

  /// The smallest illegal history that can be found by removing calls, in the order in which the calls began.
  func shrunk(_ calls: [HistoryCall]) -> [HistoryCall] {
    var left = truncatedAtFailure(calls.sorted { $0.begin < $1.begin })
    guard checker.isIllegal(left) else { return left }
    var count: Int
    repeat {
      count = left.count
      left = thinned(left) { call, _ in call.isObservation }
      left = thinned(left) { call, rest in rest().canDo(without: call) }
    } while left.count < count
    return left
  }

  /// The calls up to the point at which the search fails. Only later calls that no remaining read observes are removed.
  private func truncatedAtFailure(_ calls: [HistoryCall]) -> [HistoryCall] {
    guard case .illegal(let number) = checker.check(calls).outcome else { return calls }
    let end = calls[number].end
    let beginning = calls.filter { $0.method.isRead ? $0.end <= end : $0.begin < end }
      // A transaction that is still in progress may have read removed changes.
      .map { $0.method == .transaction && $0.end > end && !$0.isObservation ? $0.withoutObservations : $0 }
      .filter { $0.end <= end || !$0.isObservation }
    // The failure may depend on later calls.
    return checker.isIllegal(beginning) ? beginning : calls
  }

  /// Removes calls that may be removed, first many at a time, while the history stays illegal.
  private func thinned(
    _ calls: [HistoryCall], where mayGo: (HistoryCall, () -> Remainder) -> Bool
  ) -> [HistoryCall] {
    var left = calls
    var size = left.count
    while size > 0 {
      var start = 0
      while start < left.count {
        let chunk = start..<min(start + size, left.count)
        // Reads of the chunk that remain may observe its changes.
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

/// The remaining history after some calls are removed.
private struct Remainder {
  private struct Key {
    /// The values of the key that remaining calls observe.
    var seen: Set<Int> = []
    var firstLook = Int.max
    /// The beginning of the last change that ended before the first observation began.
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

  /// Whether no remaining call observes the effects of the call: no read returns its values, or another change comes
  /// before the read.
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
