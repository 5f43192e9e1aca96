import StockroomCore

/// The time within which a check has to get anywhere is over.
struct TimeLimitExceeded: Error {}

/// When a check last got anywhere, to begin with by starting. While the machine sleeps, no time goes by.
final class CheckProgress: Sendable {
  private let state = Guarded((last: SuspendingClock.now, count: 0))

  var last: SuspendingClock.Instant { state.withLock { $0.last } }

  func note() {
    let now = SuspendingClock.now
    state.withLock { $0 = (now, $0.count + 1) }
  }

  /// What happened if the check got nowhere within the limit, as a clause.
  func standstill(of limit: Duration) -> String {
    let standstill =
      switch state.withLock({ $0.count }) {
      case 0: "the check had not come to an end after \(limit)"
      case 1: "the check got no further for \(limit) after it had taken 1 step"
      case let count: "the check got no further for \(limit) after it had taken \(count) steps"
      }
    return standstill + "; an engine that is slow, and does not hang, needs a suite with a longer timeLimit"
  }
}

/// Does the work in a task of its own and waits for it, as long as it makes progress at least once within the limit.
///
/// Work that gets nowhere is cancelled and left behind: nobody can stop a task that does not want to.
///
/// - Parameter threads: What the work runs on in place of the cooperative pool. They are stopped when it has ended.
func withTimeLimit<Result: Sendable>(
  _ limit: Duration, since progress: CheckProgress = CheckProgress(), on threads: CheckThreads? = nil,
  _ work: @escaping @Sendable () async -> Result
) async -> Swift.Result<Result, TimeLimitExceeded> {
  let race = Race<Swift.Result<Result, TimeLimitExceeded>>()
  let worker = Task(executorPreference: threads) { @concurrent in
    race.finish(with: .success(await work()))
    threads?.stop()
  }
  let timer = Task { @concurrent in
    while case let end = progress.last.advanced(by: limit), end > .now {
      // Sleeping ends early only when the work is done and the timer has been cancelled.
      guard (try? await Task.sleep(until: end, clock: .suspending)) != nil else { return }
    }
    race.finish(with: .failure(TimeLimitExceeded()))
  }
  return await withTaskCancellationHandler {
    let result = await race.winner()
    timer.cancel()
    worker.cancel()
    return result
  } onCancel: {
    worker.cancel()
  }
}

/// Hands the first of several results to the one who waits.
private final class Race<Value: Sendable>: Sendable {
  private enum State {
    case running
    case awaited(CheckedContinuation<Value, Never>)
    case won(Value)
  }

  private let state = Guarded(State.running)

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
