/// What is known of a history before the search begins: who looks at which value, and until when.
///
/// It is what keeps the search narrow. A value that is written once and still to be read must not be overwritten, and
/// values that nobody will read are all the same.
struct Foresight {
  private struct Outlook {
    var writers = 0
    /// When the last look at the value begins, and when the last look ends.
    var lastBegin = Int.min
    var lastEnd: Int?
  }

  private var outlooks: [Cell: Outlook] = [:]
  /// For each key what removes it, by the beginning, with the latest end so far.
  private var removals: [Int: [(begin: Int, end: Int)]] = [:]

  init(_ moves: [Move], initial: [Int]) {
    for (key, value) in initial.enumerated() where value > 0 {
      outlooks[Cell(key: key, value: value), default: Outlook()].writers += 1
    }
    for move in moves.sorted(by: { $0.begin < $1.begin }) {
      for cell in move.writes {
        if cell.value > 0 { outlooks[cell, default: Outlook()].writers += 1 }
        if cell.value == Cell.absent {
          let end = max(move.end, removals[cell.key]?.last?.end ?? 0)
          removals[cell.key, default: []].append((move.begin, end))
        }
      }
      for cell in move.sights where cell.value > 0 {
        outlooks[cell, default: Outlook()].lastBegin = max(outlooks[cell]?.lastBegin ?? .min, move.begin)
        outlooks[cell, default: Outlook()].lastEnd = max(outlooks[cell]?.lastEnd ?? .min, move.end)
      }
    }
  }

  /// Whether somebody will begin to look at the value, which will never be written again.
  func isAwaited(_ cell: Cell, at time: Int) -> Bool {
    guard let outlook = outlooks[cell] else { return false }
    return outlook.writers == 1 && outlook.lastBegin > time
  }

  /// The value, or ``Cell/present`` if nobody looks at it from then on.
  func value(of cell: Cell, from time: Int) -> Int {
    guard cell.value > 0 else { return cell.value }
    guard let lastEnd = outlooks[cell]?.lastEnd, lastEnd >= time else { return Cell.present }
    return cell.value
  }

  /// Whether the move writes values that nobody ever looks at, while nothing that is written is removed.
  ///
  /// Such a move can be taken to happen unseen, just before another write of its keys.
  func isUnseen(_ move: Move) -> Bool {
    !move.isLook
      && move.writes.allSatisfy { cell in
        cell.value != Cell.absent && value(of: cell, from: .min) == Cell.present
          && !isRemoved(cell.key, during: move)
      }
  }

  private func isRemoved(_ key: Int, during move: Move) -> Bool {
    guard let removals = removals[key] else { return false }
    var (low, high) = (0, removals.count)
    while low < high {
      let middle = (low + high) / 2
      if removals[middle].begin < move.end { low = middle + 1 } else { high = middle }
    }
    return low > 0 && removals[low - 1].end > move.begin
  }
}
