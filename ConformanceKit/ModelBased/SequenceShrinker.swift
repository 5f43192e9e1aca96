import StockroomCore

/// Searches for the shortest failing sequence, starting with a failing one.
///
/// Drops calls, many at a time at first and then one by one; then simplifies the remaining ones. Every attempt runs in
/// a new place, and is kept if it fails in any way: the goal is short evidence. It must also fail on other machines, so
/// it waits explicitly where the duration of calls matters.
struct SequenceShrinker {
  /// Makes the calls and returns the failure, if any.
  private let attempt: ([Command]) async throws -> FailedSequence?
  /// The shortest failing sequence so far.
  private(set) var shortest: FailedSequence
  private var attemptsLeft: Int
  private let deadline: ContinuousClock.Instant

  init(
    _ failure: FailedSequence, attempts: Int = 2_000, time: Duration = .seconds(20),
    attempt: @escaping ([Command]) async throws -> FailedSequence?
  ) {
    (shortest, self.attempt, attemptsLeft) = (failure, attempt, attempts)
    deadline = .now + time
  }

  /// Shrinks until nothing can be removed any more, or the budget is spent.
  mutating func shrink() async throws {
    var before: [Command]
    repeat {
      before = shortest.operations
      try await waitInstead()
      try await dropCalls()
      try await simplifyCalls()
      try await simplifyKeys()
      try await renumberValues()
    } while shortest.operations != before && !isSpent
  }

  private var isSpent: Bool { attemptsLeft <= 0 || ContinuousClock.now >= deadline }

  /// Keeps a sequence as the shortest, up to its failing call, if it fails.
  private mutating func keep(_ candidate: [Command]) async throws -> Bool {
    if isSpent || candidate == shortest.operations || candidate.isEmpty { return false }
    attemptsLeft -= 1
    guard let failure = try await attempt(candidate) else { return false }
    if failure.missingWait != nil, shortest.missingWait == nil { return false }
    shortest = failure
    return true
  }

  // MARK: Calls

  /// Adds a wait where the failure depends on the duration of calls.
  private mutating func waitInstead() async throws {
    guard let place = shortest.missingWait else { return }
    var candidate = shortest.operations
    candidate.insert(.wait, at: place)
    _ = try await keep(candidate)
  }

  private mutating func dropCalls() async throws {
    var count = max(1, shortest.operations.count / 2)
    while true {
      // From the end, because earlier calls rarely depend on later ones.
      var end = shortest.operations.count
      while end > 0 {
        var candidate = shortest.operations
        candidate.removeSubrange(max(0, end - count)..<end)
        _ = try await keep(candidate)
        end = min(end - count, shortest.operations.count)
      }
      if count == 1 { return }
      count /= 2
    }
  }

  private mutating func simplifyCalls() async throws {
    var index = 0
    while index < shortest.operations.count {
      if try await simplifyCall(at: index) { continue }
      try await shortenValues(at: index)
      index += 1
    }
  }

  /// Replaces the call with the first simpler one with which the sequence still fails.
  private mutating func simplifyCall(at index: Int) async throws -> Bool {
    for simpler in shortest.operations[index].simpler {
      var candidate = shortest.operations
      candidate[index] = simpler
      if try await keep(candidate) { return true }
    }
    return false
  }

  // MARK: Values

  /// Finds the smallest size of each value with which the sequence still fails.
  private mutating func shortenValues(at index: Int) async throws {
    var place = 0
    while index < shortest.operations.count {
      let values = shortest.operations[index].values
      guard values.indices.contains(place) else { return }
      defer { place += 1 }
      guard let size = values[place].size else { continue }
      func sized(_ size: Int?) -> [Command] {
        var candidate = shortest.operations
        candidate[index] = candidate[index].replacingValue(
          at: place,
          by: CommandValue(
            values[place].number, size: size, differsInTheMiddle: values[place].differsInTheMiddle))
        return candidate
      }
      if try await keep(sized(nil)) { continue }
      var (passing, failing) = (-1, size)
      while failing - passing > 1, index < shortest.operations.count, !isSpent {
        let middle = (passing + failing) / 2
        if try await keep(sized(middle)) { failing = middle } else { passing = middle }
      }
    }
  }

  /// Renumbers the values in the order in which they are written.
  private mutating func renumberValues() async throws {
    var numbers: [Int: Int] = [:]
    let renumbered = shortest.operations.map { operation in
      operation.values.indices.reduce(operation) { operation, place in
        let value = operation.values[place]
        let number = numbers[value.number] ?? numbers.count + 1
        numbers[value.number] = number
        return operation.replacingValue(
          at: place, by: CommandValue(number, size: value.size, differsInTheMiddle: value.differsInTheMiddle))
      }
    }
    _ = try await keep(renumbered)
  }

  // MARK: Keys

  private mutating func simplifyKeys() async throws {
    var done: Set<CacheKey> = []
    while let key = shortest.operations.flatMap(\.keys).first(where: { !done.contains($0) }) {
      done.insert(key)
      let others = Set(shortest.operations.flatMap(\.keys))
      // First tries to merge two keys into one.
      for simpler in others.subtracting([key]).sorted() + key.simpler.filter({ !others.contains($0) }) {
        if try await keep(shortest.operations.map { $0.renaming { $0 == key ? simpler : $0 } }) {
          done.insert(simpler)
          break
        }
      }
    }
    try await shortenRuns()
  }

  /// Finds the smallest length of runs of repeated characters, for all keys together: an engine often confuses keys
  /// because of their common prefix.
  private mutating func shortenRuns() async throws {
    let longest = shortest.operations.flatMap(\.keys).map(\.longestRun).max() ?? 0
    var (passing, failing) = (0, longest)
    let original = shortest.operations
    while failing - passing > 1, !isSpent {
      let middle = (passing + failing) / 2
      let candidate = original.map { $0.renaming { $0.limitingRuns(to: middle) } }
      if try await keep(candidate) { failing = middle } else { passing = middle }
    }
  }
}
