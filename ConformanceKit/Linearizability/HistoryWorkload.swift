import StockroomCore
import StockroomKitSupport

/// The workload of a history: random choices from a seed.
struct HistoryWorkload: Sendable {
  /// The methods that are called, with their relative frequencies.
  let methods: [(method: HistoryCall.Method, weight: Int)]
  /// Few keys, so that tasks conflict.
  var keyCount = 6
  var tasks = 16
  /// How many tasks make changes. The others only read, twice as often.
  ///
  /// If sixteen tasks change several keys and all wait for one writer, there are too many possible orders to search.
  var writers = 16
  /// Whether some calls are cancelled.
  var cancels = false
  /// Whether a few values are written repeatedly, because engines may treat equal values specially.
  var usesFewValues = false

  /// The number of calls between two checks of the engine's state, at which no call is in progress.
  static let callsInRound = 4_000

  /// Makes calls from all tasks, then reads every key from one.
  ///
  /// - Parameters:
  ///   - number: The number of the round, since every value is new.
  ///   - engines: Engines on the same place, among which the tasks are distributed. The last reads use the first
  ///     engine.
  ///   - deadline: When the tasks stop, if they have not made all of their calls.
  /// - Returns: The calls in no particular order.
  func round(
    _ number: Int, on engines: [EngineUnderTest], calls: Int, seed: UInt64,
    until deadline: ContinuousClock.Instant? = nil
  ) async -> [HistoryCall] {
    let clock = StepClock()
    let history = await record(
      number, on: engines, by: Array(1...tasks), calls: calls, seed: seed, clock, until: deadline)
    return await history + audit(engines[0], clock, after: history)
  }

  /// Makes the calls of some of the tasks of a round.
  func record(
    _ number: Int, on engines: [EngineUnderTest], by players: [Int], calls: Int, seed: UInt64,
    _ clock: any HistoryClock, until deadline: ContinuousClock.Instant? = nil
  ) async -> [HistoryCall] {
    let arrivals = StepClock()
    let share = max(1, calls / (2 * tasks - writers))
    let entries = HistoryEntries(count: keyCount)
    return await withTaskGroup { group in
      for task in players {
        group.addTask { @concurrent in
          var player = HistoryPlayer(
            self, task: task, round: number, share: share, seed: seed, clock, engines[task % engines.count],
            entries)
          // All tasks start together. Otherwise the first would be done before the last starts.
          _ = arrivals.step()
          while arrivals.now < players.count { await Task.yield() }
          for call in 0..<(task <= writers ? share : 2 * share) {
            if call >= 10, Task.isCancelled || deadline.map({ ContinuousClock.now > $0 }) ?? false { break }
            await player.makeOneCall()
          }
          return player.recorder.calls
        }
      }
      var history: [HistoryCall] = []
      for await calls in group { history += calls }
      return history
    }
  }

  /// Reads every key when no call is in progress, so that the next round starts from a known state.
  func audit(
    _ engine: EngineUnderTest, _ clock: any HistoryClock, after history: [HistoryCall]
  ) async -> [HistoryCall] {
    if history.contains(where: { $0.answer == .threw(.outcomeUnknown) }) {
      // An error here also occurs below.
      try? await ExpectedContents.settle(engine)
    }
    let entries = HistoryEntries(count: keyCount)
    var recorder = HistoryRecorder(task: 0, clock: clock)
    for number in 0..<keyCount {
      await recorder.look(.read, at: [number]) {
        try await engine.read(key: entries.keys[number])
      } answer: { data in
        entries.answer(data.map { [(entries.keys[number], $0)] } ?? [], of: [number])
      }
    }
    return recorder.calls
  }
}
