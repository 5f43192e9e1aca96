import Foundation
import StockroomCore

/// The check made no progress within its stall timeout.
struct StallTimeoutExceeded: Error {
  /// What happened, as a clause. It is computed before the work is cancelled, because cancellation ends the calls that
  /// it names.
  let standstill: String
}

/// When a check last made progress, initially its start.
final class CheckProgress: Sendable {
  private struct State: Sendable {
    var last: ContinuousClock.Instant
    var count = 0
    /// When a call without concurrent calls returned, an opening ended, or the check made progress.
    var lastReturn: ContinuousClock.Instant

    init() {
      let now = ContinuousClock.now
      (last, lastReturn) = (now, now)
    }
  }

  private let state = MutexProtected(State())
  /// The number of calls of each kind in progress.
  private let underWay = MutexProtected<[String: Int]>([:])

  /// The number of transaction bodies in progress.
  private let bodies = MutexProtected(0)

  var last: ContinuousClock.Instant { state.withLock { $0.last } }

  /// When the check last made progress, a call without concurrent calls returned, or an opening ended. A slow engine
  /// may need many of these for one step. They extend a step to at most five times the limit, because a check may
  /// repeat a call forever.
  func last(within limit: Duration) -> ContinuousClock.Instant {
    state.withLock { max($0.last, min($0.lastReturn, $0.last + limit * 4)) }
  }

  func note() {
    let now = ContinuousClock.now
    state.withLock { state in
      (state.last, state.lastReturn) = (now, now)
      state.count += 1
    }
  }

  /// Notes that a part of the step has ended, which extends the step: see ``last(within:)``.
  func noteReturn() {
    let now = ContinuousClock.now
    state.withLock { $0.lastReturn = now }
  }

  func begin(_ call: String) { underWay.withLock { $0[call, default: 0] += 1 } }

  /// - Parameter hasReturned: Whether the call returned without an error. It has no effect while other calls are in
  ///   progress, because one of them may hang.
  func end(_ call: String, hasReturned: Bool = false) {
    let isAlone = underWay.withLock { underWay in
      let left = (underWay[call] ?? 0) - 1
      underWay[call] = left > 0 ? left : nil
      return underWay.isEmpty
    }
    if hasReturned, isAlone { noteReturn() }
  }

  /// Whether a call of an engine is in progress.
  var hasCallUnderWay: Bool { underWay.withLock { !$0.isEmpty } }

  func beginBody() { bodies.withLock { $0 += 1 } }

  func endBody() { bodies.withLock { $0 -= 1 } }

  /// Whether the body of a transaction is running.
  var hasBodyUnderWay: Bool { bodies.withLock { $0 > 0 } }

  /// The calls in progress, as a clause.
  private var calls: String {
    let calls = underWay.withLock { $0 }.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
    if calls.isEmpty { return "" }
    let named = calls.prefix(4).map { $0.value == 1 ? $0.key : "\($0.value) times \($0.key)" }
    return "; in progress: " + named.joined(separator: ", ") + (calls.count > 4 ? " and others" : "")
  }

  /// The description of a check that made no progress within the limit, as a clause.
  fileprivate func standstill(of limit: Duration) -> String {
    let standstill =
      switch state.withLock({ $0.count }) {
      case 0: "the check had not finished after \(limit)"
      case 1: "the check made no progress for \(limit) after 1 step"
      case let count: "the check made no progress for \(limit) after \(count) steps"
      }
    return standstill + calls
      + "; if the engine is slow and does not hang, give the suite a longer stallTimeout"
  }
}

/// Runs the work in a separate task and waits for it as long as it makes progress at least once within the limit.
///
/// Work without progress is cancelled and abandoned, since a task cannot be stopped by force. A thread watches the
/// time, so that work that blocks every thread of the cooperative pool does not disable the timeout. Time in which the
/// process does not run, because it is stopped or the machine sleeps, does not count. Nor does time in which it waits
/// for a processor or a disk, up to four times the limit.
///
/// - Parameters:
///   - threads: The executor of the work instead of the cooperative pool. It is stopped when the work has ended.
///   - onUndelivered: Called on the watching thread if the result has not been received ten seconds after the limit,
///     because the caller waits for a thread of the pool as well.
func withStallTimeout<Result: Sendable>(
  _ limit: Duration, since progress: CheckProgress = CheckProgress(), on threads: CheckExecutor? = nil,
  onUndelivered: @escaping @Sendable (StallTimeoutExceeded) -> Void = { _ in },
  _ work: @escaping @Sendable () async -> Result
) async -> Swift.Result<Result, StallTimeoutExceeded> {
  let race = FirstResult<Swift.Result<Result, StallTimeoutExceeded>>()
  let worker = Task(executorPreference: threads) { @concurrent in
    race.finish(with: .success(await work()))
    threads?.stop()
  }
  let isDelivered = Latch()
  Thread.detachNewThread {
    var last = progress.last(within: limit)
    var running = RunningTimeLimit(limit, from: last, longestInterval: Latch.look * 2)
    var delays = ProcessDelays(atMost: limit * 4, longestInterval: Latch.look * 2)
    // The states of threads are read only when half of the limit is over, since that is slow.
    while !running.isOver(isDelayed: running.left < limit / 2 && delays.isDelayed()) {
      if isDelivered.wait(for: min(running.left, Latch.look)) { return }
      let latest = progress.last(within: limit)
      if latest == last { continue }
      last = latest
      running = RunningTimeLimit(limit, from: last, longestInterval: Latch.look * 2)
      delays = ProcessDelays(atMost: limit * 4, longestInterval: Latch.look * 2)
    }
    let exceeded = StallTimeoutExceeded(standstill: progress.standstill(of: limit))
    race.finish(with: .failure(exceeded))
    if !isDelivered.wait(for: .seconds(10)) { onUndelivered(exceeded) }
  }
  return await withTaskCancellationHandler {
    let result = await race.winner()
    isDelivered.signal()
    worker.cancel()
    return result
  } onCancel: {
    worker.cancel()
  }
}

/// Delivers the first of several results to the waiting task.
private final class FirstResult<Value: Sendable>: Sendable {
  private enum State {
    case running
    case awaited(CheckedContinuation<Value, Never>)
    case won(Value)
  }

  private let state = MutexProtected(State.running)

  func finish(with value: Value) {
    let continuation = state.withLock { state -> CheckedContinuation<Value, Never>? in
      switch state {
      case .won: return nil
      case .running:
        state = .won(value)
        return nil
      case .awaited(let continuation):
        state = .won(value)
        return continuation
      }
    }
    continuation?.resume(returning: value)
  }

  func winner() async -> Value {
    await withCheckedContinuation { continuation in
      let value = state.withLock { state -> Value? in
        if case .won(let value) = state { return value }
        state = .awaited(continuation)
        return nil
      }
      if let value { continuation.resume(returning: value) }
    }
  }
}
