import StockroomCore

/// Lets callers through one at a time, in the order in which they came.
final class Turnstile: Sendable {
  private struct State {
    /// The number of the caller who is through, or who would be next if nobody is.
    var serving = 0
    var nextNumber: Int
    var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
  }

  private let state: MutexProtected<State>

  /// - Parameter isTaken: whether it begins with a caller who is through, and who is to call ``leave()``.
  init(isTaken: Bool) { state = MutexProtected(State(nextNumber: isTaken ? 1 : 0)) }

  /// Returns once all who came before have left. A caller who has been cancelled keeps the place in the line.
  func enter() async {
    await withCheckedContinuation { continuation in
      let isNext = state.withLock { state in
        defer { state.nextNumber += 1 }
        if state.serving == state.nextNumber { return true }
        state.waiting[state.nextNumber] = continuation
        return false
      }
      if isNext { continuation.resume() }
    }
  }

  func leave() {
    let next = state.withLock { state in
      state.serving += 1
      return state.waiting.removeValue(forKey: state.serving)
    }
    next?.resume()
  }
}
