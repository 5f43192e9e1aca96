/// Searches for an order in which effects can have happened, each between its start and its end.
///
/// This is the search of Wing and Gong (Testing and verifying concurrent objects, 1993) with the memoization of Lowe
/// (Testing for linearizability, 2017). A configuration is the set of effects that have taken effect, and the resulting
/// state. None is examined twice. The search is breadth-first in time: it keeps the set of all possible configurations
/// from event to event. An effect takes effect only when it has to, which Lowe calls just in time. So the sets contain
/// only calls in progress, one bit each, and memory does not grow with the history.
///
/// Three rules keep the set small. A read takes effect as soon as it can, since it changes nothing. So does a write
/// whose value no call reads. And no effect is applied that would overwrite a value which a later call still has to read.
/// See ``ValueLiveness``.
struct LinearizabilitySearch {
  enum Outcome: Hashable {
    case legal
    /// There is no possible order. The search failed at this call.
    case illegal(call: Int)
    /// There were too many orders to examine all of them.
    case undecided
  }

  private struct Configuration: Hashable {
    /// The slots of the effects in progress that have taken effect.
    var done: UInt64
    /// The value of each key.
    var state: [Int]
  }

  /// The maximum number of configurations that are examined for one event.
  static let limit = 20_000

  /// The number of configurations examined so far: a measure of the work.
  private(set) var examined = 0
  private let effects: [Effect]
  private let liveness: ValueLiveness
  private let keyMasks: [UInt64]
  /// The keys that the effect writes without having read their values.
  private let blindMasks: [UInt64]
  private let areUnseen: [Bool]

  private var front: Set<Configuration>
  private var now = Int.min
  /// The effect in each of the 64 slots, and sets of slots by kind of effect.
  private var places = [Int](repeating: 0, count: 64)
  private var pending: UInt64 = 0
  private var reads: UInt64 = 0
  private var unseen: UInt64 = 0

  /// - Parameters:
  ///   - effects: Effects on keys from 0 to 63.
  ///   - initial: The initial value of each key.
  init(_ effects: [Effect], initial: [Int]) {
    let liveness = ValueLiveness(effects, initial: initial)
    self.effects = effects
    self.liveness = liveness
    keyMasks = effects.map { effect in
      effect.count != nil ? .max : effect.keys.reduce(0) { $0 | 1 << UInt64($1) }
    }
    blindMasks = effects.map { effect in
      let written = effect.writes.reduce(0) { $0 | 1 << UInt64($1.key) } as UInt64
      // An effect that has only observed that a key exists may overwrite any value of it.
      return effect.observations.reduce(written) {
        $1.value == Cell.present ? $0 : $0 & ~(1 << UInt64($1.key))
      }
    }
    areUnseen = effects.map(liveness.isUnseen)
    let state = initial.enumerated().map {
      liveness.value(of: Cell(key: $0.offset, value: $0.element), from: .min)
    }
    front = [Configuration(done: 0, state: state)]
  }

  mutating func run() -> Outcome {
    var events: [(time: Int, isEnd: Bool, effect: Int)] = []
    for (index, effect) in effects.enumerated() {
      events.append((effect.begin, false, index))
      if effect.end != .max { events.append((effect.end, true, index)) }
    }
    events.sort { ($0.time, $0.isEnd ? 1 : 0) < ($1.time, $1.isEnd ? 1 : 0) }
    for event in events {
      now = event.time
      guard event.isEnd ? end(event.effect) : begin(event.effect) else { return .undecided }
      if front.isEmpty { return .illegal(call: effects[event.effect].call) }
    }
    return .legal
  }

  // MARK: Events

  /// Assigns a slot to the effect. False if all are in use.
  private mutating func begin(_ effect: Int) -> Bool {
    let place = (~pending).trailingZeroBitCount
    guard place < 64 else { return false }
    let bit: UInt64 = 1 << UInt64(place)
    places[place] = effect
    pending |= bit
    guard effects[effect].isRead || areUnseen[effect] else { return true }
    if effects[effect].isRead { reads |= bit } else { unseen |= bit }
    front = Set(front.map { settled($0) })
    return true
  }

  /// Keeps the configurations in which the effect has taken effect, can still do so, or need not. False if there are
  /// too many.
  private mutating func end(_ effect: Int) -> Bool {
    guard let place = places.indices.first(where: { pending & 1 << UInt64($0) != 0 && places[$0] == effect })
    else { return true }
    let bit: UInt64 = 1 << UInt64(place)
    if front.allSatisfy({ $0.done & bit != 0 }) {
      front = Set(front.map { Configuration(done: $0.done ^ bit, state: $0.state) })
    } else {
      guard let next = configurations(after: effect, at: place) else { return false }
      front = effects[effect].isOutcomeKnown ? next : next.union(front.filter { $0.done & bit == 0 })
    }
    pending &= ~bit
    reads &= ~bit
    unseen &= ~bit
    forget(effects[effect].observations)
    return true
  }

  /// Merges values that no later call reads.
  private mutating func forget(_ observations: [Cell]) {
    let forgotten = observations.filter {
      $0.value > 0 && liveness.value(of: $0, from: now + 1) == Cell.present
    }
    guard front.contains(where: { c in forgotten.contains { c.state[$0.key] == $0.value } }) else { return }
    front = Set(
      front.map { configuration in
        var configuration = configuration
        for cell in forgotten where configuration.state[cell.key] == cell.value {
          configuration.state[cell.key] = Cell.present
        }
        return settled(configuration)
      })
  }

  // MARK: Configurations

  /// The configurations right after the effect, with any possible number of other effects before it.
  private mutating func configurations(after effect: Int, at place: Int) -> Set<Configuration>? {
    let bit: UInt64 = 1 << UInt64(place)
    var next: Set<Configuration> = []
    var stack: [Configuration] = []
    for configuration in front {
      if configuration.done & bit != 0 {
        next.insert(Configuration(done: configuration.done ^ bit, state: configuration.state))
      } else {
        stack.append(configuration)
      }
    }
    let helpers = helpers(of: effect, at: place)
    var seen = Set(stack)
    while let configuration = stack.popLast() {
      examined += 1
      if seen.count + next.count > Self.limit { return nil }
      guard canStillBeSeen(effect, from: configuration, with: helpers) else { continue }
      if !effects[effect].isRead, let after = applying(place, to: configuration) {
        next.insert(Configuration(done: after.done ^ bit, state: after.state))
      }
      forEachPlace(in: helpers & ~configuration.done) { helper in
        guard mayComeFirst(helper, in: configuration), let after = applying(helper, to: configuration) else {
          return
        }
        if after.done & bit != 0 {
          next.insert(Configuration(done: after.done ^ bit, state: after.state))
        } else if seen.insert(after).inserted {
          stack.append(after)
        }
      }
    }
    return next
  }

  /// The slots of the changes in progress that can influence the effect: changes that have a key in common with it,
  /// changes that have a key in common with one of these, and so on. All others can happen later as well. Keys that are
  /// read together count as connected, since a read may have seen the state between two changes.
  private func helpers(of effect: Int, at place: Int) -> UInt64 {
    var keys = keyMasks[effect]
    var helpers: UInt64 = 0
    var rest = pending & ~(1 << UInt64(place))
    var hasGrown = true
    while hasGrown {
      hasGrown = false
      forEachPlace(in: rest) { other in
        guard keyMasks[places[other]] & keys != 0 else { return }
        keys |= keyMasks[places[other]]
        helpers |= 1 << UInt64(other)
        rest &= ~(1 << UInt64(other))
        hasGrown = true
      }
    }
    return helpers & ~reads
  }

  /// Whether making the change early can lead to other results.
  ///
  /// An unseen write of an existing key cannot: it counts as done when another write overwrites it (see
  /// ``applying(_:to:)``).
  private func mayComeFirst(_ place: Int, in configuration: Configuration) -> Bool {
    let effect = places[place]
    guard areUnseen[effect], effects[effect].writes.count == 1 else { return true }
    return configuration.state[effects[effect].writes[0].key] == Cell.absent
  }

  /// The configuration after a change has taken effect. Nil if the change overwrites a value that a later call reads,
  /// or if it has itself read something else.
  private func applying(_ place: Int, to configuration: Configuration) -> Configuration? {
    let change = places[place]
    let writes = effects[change].writes
    guard isObserved(effects[change], in: configuration.state) else { return nil }
    for cell in writes {
      let old = configuration.state[cell.key]
      if old > 0, old != cell.value, liveness.isAwaited(Cell(key: cell.key, value: old), at: now) {
        return nil
      }
    }
    var result = configuration
    result.done |= 1 << UInt64(place)
    forEachPlace(in: pending & unseen & ~result.done) { other in
      let goesUnder = effects[places[other]].writes.allSatisfy {
        configuration.state[$0.key] == Cell.present || blindMasks[change] & 1 << UInt64($0.key) != 0
      }
      if goesUnder { result.done |= 1 << UInt64(other) }
    }
    for cell in writes { result.state[cell.key] = liveness.value(of: cell, from: now) }
    return settled(result)
  }

  /// The configuration after all effects that do not change the state have been applied.
  private func settled(_ configuration: Configuration) -> Configuration {
    var result = configuration
    forEachPlace(in: pending & (reads | unseen) & ~configuration.done) { place in
      let effect = effects[places[place]]
      let isDone =
        effect.isRead
        ? isObserved(effect, in: configuration.state)
        : effect.writes.allSatisfy { configuration.state[$0.key] == Cell.present }
      if isDone { result.done |= 1 << UInt64(place) }
    }
    return result
  }

  private func isObserved(_ effect: Effect, in state: [Int]) -> Bool {
    if let count = effect.count { return state.count { $0 != Cell.absent } == count }
    return effect.observations.allSatisfy { isObserved($0, in: state) }
  }

  private func isObserved(_ cell: Cell, in state: [Int]) -> Bool {
    let value = state[cell.key]
    return value == cell.value || (cell.value == Cell.present && value != Cell.absent)
  }

  /// Whether each observation that does not match the state can still become true by a change in progress.
  private func canStillBeSeen(_ look: Int, from configuration: Configuration, with helpers: UInt64) -> Bool {
    effects[look].observations.allSatisfy { observation in
      if isObserved(observation, in: configuration.state) { return true }
      var canBe = false
      forEachPlace(in: helpers & ~configuration.done) { place in
        canBe =
          canBe
          || effects[places[place]].writes.contains {
            $0.key == observation.key
              && ($0.value == observation.value
                || (observation.value == Cell.present && $0.value != Cell.absent))
          }
      }
      return canBe
    }
  }
}

/// Calls the body with the index of each set bit.
private func forEachPlace(in mask: UInt64, _ body: (Int) -> Void) {
  var rest = mask
  while rest != 0 {
    body(rest.trailingZeroBitCount)
    rest &= rest - 1
  }
}
