/// Says whether a history can have come from an engine that keeps its promises.
struct HistoryJudge {
  let model: AtomicityModel
  /// The value of each key before the history.
  let initial: [Int]

  /// The verdict, and how many configurations were looked at.
  ///
  /// Keys that no move has to do with at the same time are searched one after the other, as a history is linearizable
  /// if it is so for each of them (Herlihy and Wing, 1990).
  func verdict(on calls: [HistoryCall]) -> (outcome: LinearizabilitySearch.Outcome, examined: Int) {
    var groups = KeyGroups(count: model.keyCount)
    var moves: [Move] = []
    for (number, call) in calls.enumerated() {
      for move in model.moves(of: call, number: number) {
        groups.join(move.count == nil ? move.keys : Array(0..<model.keyCount))
        moves.append(move)
      }
    }
    var examined = 0
    var isUndecided = false
    for (keys, moves) in groups.split(moves) {
      var search = LinearizabilitySearch(moves, initial: keys.map { initial[$0] })
      let outcome = search.run()
      examined += search.examined
      switch outcome {
      case .legal: break
      case .illegal: return (outcome, examined)
      case .undecided: isUndecided = true
      }
    }
    return (isUndecided ? .undecided : .legal, examined)
  }

  func isLegal(_ calls: [HistoryCall]) -> Bool { verdict(on: calls).outcome == .legal }

  func isIllegal(_ calls: [HistoryCall]) -> Bool {
    if case .illegal = verdict(on: calls).outcome { true } else { false }
  }
}

/// Keys that have to be searched together.
private struct KeyGroups {
  /// Another key of the same group; of the one that stands for the group, itself.
  private var parents: [Int]

  init(count: Int) { parents = Array(0..<count) }

  private func root(of key: Int) -> Int {
    var key = key
    while parents[key] != key { key = parents[key] }
    return key
  }

  mutating func join(_ keys: [Int]) {
    guard let first = keys.first else { return }
    for key in keys.dropFirst() {
      let (one, other) = (root(of: first), root(of: key))
      if one != other { parents[other] = one }
    }
  }

  /// The moves of each group, with their keys numbered within it.
  func split(_ moves: [Move]) -> [(keys: [Int], moves: [Move])] {
    let groups = Dictionary(grouping: parents.indices, by: root).sorted { $0.key < $1.key }.map(\.value)
    var places = [(group: Int, key: Int)](repeating: (0, 0), count: parents.count)
    for (group, keys) in groups.enumerated() {
      for (number, key) in keys.enumerated() { places[key] = (group, number) }
    }
    var split = groups.map { (keys: $0, moves: [Move]()) }
    for var move in moves {
      guard let key = move.keys.first ?? (move.count == nil ? nil : 0) else { continue }
      for index in move.writes.indices { move.writes[index].key = places[move.writes[index].key].key }
      for index in move.sights.indices { move.sights[index].key = places[move.sights[index].key].key }
      split[places[key].group].moves.append(move)
    }
    return split
  }
}
