import StockroomCore

/// The time that a check may take is over.
struct TimeLimitExceeded: Error {}

/// Does the work in a task of its own and waits for it, but not longer than the limit.
///
/// Work that takes longer is cancelled and left behind: nobody can stop a task that does not want to.
func withTimeLimit<Result: Sendable>(
  _ limit: Duration, _ work: @escaping @Sendable () async -> Result
) async -> Swift.Result<Result, TimeLimitExceeded> {
  let race = Race<Swift.Result<Result, TimeLimitExceeded>>()
  let worker = Task { @concurrent in race.finish(with: .success(await work())) }
  let timer = Task { @concurrent in
    // Sleeping ends early only when the work is done and the timer has been cancelled.
    if (try? await Task.sleep(for: limit)) != nil { race.finish(with: .failure(TimeLimitExceeded())) }
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
