import StockroomCore

/// An asynchronous mutex: admits one caller at a time, in the order of the calls to ``lock()``.
final class AsyncMutex: Sendable {
  private struct State {
    /// The ticket of the owner, or, if the mutex is unlocked, of the next caller.
    var serving = 0
    var nextTicket: Int
    var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
  }

  private let state: MutexProtected<State>

  /// - Parameter isLocked: Whether the mutex is locked initially; if so, the creator must call ``unlock()``.
  init(isLocked: Bool) { state = MutexProtected(State(nextTicket: isLocked ? 1 : 0)) }

  /// Waits until the mutex is locked by this caller. Cancellation has no effect.
  func lock() async {
    await withCheckedContinuation { continuation in
      let isNext = state.withLock { state in
        defer { state.nextTicket += 1 }
        if state.serving == state.nextTicket { return true }
        state.waiting[state.nextTicket] = continuation
        return false
      }
      if isNext { continuation.resume() }
    }
  }

  func unlock() {
    let next = state.withLock { state in
      state.serving += 1
      return state.waiting.removeValue(forKey: state.serving)
    }
    next?.resume()
  }
}
