import Foundation
import StockroomCore

/// The check made no progress within its stall timeout.
struct StallTimeoutExceeded: Error {
  /// What happened, as a clause. It is said before the work is cancelled, which ends the calls that it names.
  let standstill: String
}

/// When a check last made progress, initially its start.
final class CheckProgress: Sendable {
  private struct State: Sendable {
    var last: ContinuousClock.Instant
    var count = 0
    /// When a call that was alone returned, an opening ended, or there was progress.
    var lastReturn: ContinuousClock.Instant

    init() {
      let now = ContinuousClock.now
      (last, lastReturn) = (now, now)
    }
  }

  private let state = MutexProtected(State())
  /// How many calls of each kind have begun and not come to their end.
  private let underWay = MutexProtected<[String: Int]>([:])

  /// How many bodies of transactions run.
  private let bodies = MutexProtected(0)

  var last: ContinuousClock.Instant { state.withLock { $0.last } }

  /// When the check last made progress, a call returned that was alone, or an opening ended: an engine that is slow has many of them in
  /// one step. They prolong a step to no more than five times the limit, as a check may ask again and again for what never comes.
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

  /// Notes that a part of the step has ended, which prolongs the step: see ``last(within:)``.
  func noteReturn() {
    let now = ContinuousClock.now
    state.withLock { $0.lastReturn = now }
  }

  func begin(_ call: String) { underWay.withLock { $0[call, default: 0] += 1 } }

  /// - Parameter hasReturned: Whether the call has not thrown. Beside others that are in progress, of which one may hang, it does not
  ///   matter.
  func end(_ call: String, hasReturned: Bool = false) {
    let isAlone = underWay.withLock { underWay in
      let left = (underWay[call] ?? 0) - 1
      underWay[call] = left > 0 ? left : nil
      return underWay.isEmpty
    }
    if hasReturned, isAlone { noteReturn() }
  }

  /// Whether a call of an engine has begun and not come to its end.
  var hasCallUnderWay: Bool { underWay.withLock { !$0.isEmpty } }

  func beginBody() { bodies.withLock { $0 += 1 } }

  func endBody() { bodies.withLock { $0 -= 1 } }

  /// Whether the body of a transaction runs.
  var hasBodyUnderWay: Bool { bodies.withLock { $0 > 0 } }

  /// The calls under way, as a clause.
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

/// Does the work in a task of its own and waits for it, as long as it makes progress at least once within the limit.
///
/// Work without progress is cancelled and abandoned, since a task cannot be stopped by force. A thread
/// watches the time, so that work that blocks every thread of the cooperative pool does not stop the clock.
/// Time in which the process does not run, because it is stopped or the machine sleeps, does not count.
///
/// - Parameters:
///   - threads: What the work runs on in place of the cooperative pool. They are stopped when it has ended.
///   - onUndelivered: Called on that thread if nobody takes the result for a while after the limit: the caller, too, waits for
///     a thread of the pool.
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
    var running = RunningTimeLimit(limit, from: last, longestLook: Latch.look * 2)
    while !running.isOver() {
      if isDelivered.wait(for: min(running.left, Latch.look)) { return }
      let latest = progress.last(within: limit)
      if latest == last { continue }
      last = latest
      running = RunningTimeLimit(limit, from: last, longestLook: Latch.look * 2)
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

/// Hands the first of several results to the one who waits.
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
