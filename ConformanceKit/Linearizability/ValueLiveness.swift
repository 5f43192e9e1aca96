/// Information about a history, computed before the search: which values are read by which calls, and until when.
///
/// It keeps the search small. A value that is written once and read later must not be overwritten, and values that are
/// never read are equivalent.
struct ValueLiveness {
  private struct Liveness {
    var writers = 0
    /// When the last read of the value begins, and when a read of it last ends.
    var lastBegin = Int.min
    var lastEnd: Int?
  }

  private var liveness: [Cell: Liveness] = [:]
  /// For each key, the effects that remove it, by their beginning, with the latest end so far.
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

  /// Whether a later call reads the value, and no other write can restore it.
  func isAwaited(_ cell: Cell, at time: Int) -> Bool {
    guard let liveness = liveness[cell] else { return false }
    return liveness.writers == 1 && liveness.lastBegin > time
  }

  /// The value, or ``Cell/present`` if no call reads it from then on.
  func value(of cell: Cell, from time: Int) -> Int {
    guard cell.value > 0 else { return cell.value }
    guard let lastEnd = liveness[cell]?.lastEnd, lastEnd >= time else { return Cell.present }
    return cell.value
  }

  /// Whether no call ever reads the written values, and the effect removes nothing.
  ///
  /// Such an effect can be assumed to happen right before another write of its keys, without being observed.
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
