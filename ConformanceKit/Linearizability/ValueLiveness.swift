/// Information about a history before the search: which calls read which value, and until when.
///
/// It is what keeps the search narrow. A value that is written once and still to be read must not be overwritten, and
/// values that nobody will read are all the same.
struct ValueLiveness {
  private struct Liveness {
    var writers = 0
    /// When the last read of the value begins, and when the last read ends.
    var lastBegin = Int.min
    var lastEnd: Int?
  }

  private var liveness: [Cell: Liveness] = [:]
  /// For each key what removes it, by the beginning, with the latest end so far.
  private var removals: [Int: [(begin: Int, end: Int)]] = [:]

  init(_ effects: [Effect], initial: [Int]) {
    for (key, value) in initial.enumerated() where value > 0 {
      liveness[Cell(key: key, value: value), default: Liveness()].writers += 1
    }
    for effect in effects.sorted(by: { $0.begin < $1.begin }) {
      for cell in effect.writes {
        if cell.value > 0 { liveness[cell, default: Liveness()].writers += 1 }
        if cell.value == Cell.absent {
          let end = max(effect.end, removals[cell.key]?.last?.end ?? 0)
          removals[cell.key, default: []].append((effect.begin, end))
        }
      }
      for cell in effect.observations where cell.value > 0 {
        liveness[cell, default: Liveness()].lastBegin = max(liveness[cell]?.lastBegin ?? .min, effect.begin)
        liveness[cell, default: Liveness()].lastEnd = max(liveness[cell]?.lastEnd ?? .min, effect.end)
      }
    }
  }

  /// Whether a later call reads the value, which will never be written again.
  func isAwaited(_ cell: Cell, at time: Int) -> Bool {
    guard let liveness = liveness[cell] else { return false }
    return liveness.writers == 1 && liveness.lastBegin > time
  }

  /// The value, or ``Cell/present`` if nobody looks at it from then on.
  func value(of cell: Cell, from time: Int) -> Int {
    guard cell.value > 0 else { return cell.value }
    guard let lastEnd = liveness[cell]?.lastEnd, lastEnd >= time else { return Cell.present }
    return cell.value
  }

  /// Whether the effect writes values that nobody ever looks at, while nothing that is written is removed.
  ///
  /// Such an effect can be taken to happen unseen, just before another write of its keys.
  func isUnseen(_ effect: Effect) -> Bool {
    !effect.isRead && effect.observations.isEmpty
      && effect.writes.allSatisfy { cell in
        cell.value != Cell.absent && value(of: cell, from: .min) == Cell.present
          && !isRemoved(cell.key, during: effect)
      }
  }

  private func isRemoved(_ key: Int, during effect: Effect) -> Bool {
    guard let removals = removals[key] else { return false }
    var (low, high) = (0, removals.count)
    while low < high {
      let middle = (low + high) / 2
      if removals[middle].begin < effect.end { low = middle + 1 } else { high = middle }
    }
    return low > 0 && removals[low - 1].end > effect.begin
  }
}
