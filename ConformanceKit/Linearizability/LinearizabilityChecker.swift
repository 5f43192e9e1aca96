/// Checks whether a history is possible for an engine with these atomicity promises.
struct LinearizabilityChecker {
  let model: AtomicityModel
  /// The value of each key before the history.
  let initial: [Int]

  /// Returns the result, and the number of configurations that were examined.
  ///
  /// Keys without a common effect are searched independently, because a history is linearizable if it is so for each of
  /// them (Herlihy and Wing, 1990).
  func check(_ calls: [HistoryCall]) -> (outcome: LinearizabilitySearch.Outcome, examined: Int) {
    var groups = KeyGroups(count: model.keyCount)
    var effects: [Effect] = []
    for (number, call) in calls.enumerated() {
      for effect in model.effects(of: call, number: number) {
        groups.join(effect.count == nil ? effect.keys : Array(0..<model.keyCount))
        effects.append(effect)
      }
    }
    var examined = 0
    var isUndecided = false
    for (keys, effects) in groups.split(effects) {
      var search = LinearizabilitySearch(effects, initial: keys.map { initial[$0] })
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

  func isLegal(_ calls: [HistoryCall]) -> Bool { check(calls).outcome == .legal }

  func isIllegal(_ calls: [HistoryCall]) -> Bool {
    if case .illegal = check(calls).outcome { true } else { false }
  }
}

/// Groups of keys that have to be searched together.
private struct KeyGroups {
  /// For each key, another key of its group; for the representative of the group, the key itself (union-find).
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

  /// The effects of each group, with their keys numbered within it.
  func split(_ effects: [Effect]) -> [(keys: [Int], effects: [Effect])] {
    let groups = Dictionary(grouping: parents.indices, by: root).sorted { $0.key < $1.key }.map(\.value)
    var places = [(group: Int, key: Int)](repeating: (0, 0), count: parents.count)
    for (group, keys) in groups.enumerated() {
      for (number, key) in keys.enumerated() { places[key] = (group, number) }
    }
    var split = groups.map { (keys: $0, effects: [Effect]()) }
    for var effect in effects {
      guard let key = effect.keys.first ?? (effect.count == nil ? nil : 0) else { continue }
      for index in effect.writes.indices { effect.writes[index].key = places[effect.writes[index].key].key }
      for index in effect.observations.indices {
        effect.observations[index].key = places[effect.observations[index].key].key
      }
      split[places[key].group].effects.append(effect)
    }
    return split
  }
}
