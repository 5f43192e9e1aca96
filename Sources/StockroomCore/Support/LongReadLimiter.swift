import Synchronization

/// Limits how many long reads of one place are under way. The others wait, in the order in which they came.
///
/// Since long reads yield to one another, there could otherwise be as many as there are tasks, each with something
/// that is scarce: a connection with its descriptors, or a place in a table of readers.
package final class LongReadLimiter: Sendable {
  private struct State {
    /// How many may begin. None waits unless it is 0.
    var free: Int
    var waiting: [(id: Int, continuation: CheckedContinuation<Void, Never>)] = []
    /// Those that are resumed without having been admitted. The continuation does not say so: see ``ThreadResult``.
    var refused: Set<Int> = []
  }

  private let state: MutexProtected<State>
  private let lastID = Atomic(0)

  /// - Parameter limit: How many may be under way. Beyond 32, those that have to wait would finish no earlier if they had begun.
  package init(limit: Int = 32) { state = MutexProtected(State(free: limit)) }

  /// Suspends until few enough long reads are under way, and counts the caller in, who calls ``leave()`` afterwards.
  ///
  /// - Throws: `CancellationError`, at once, if the task is cancelled before. The caller is not counted then.
  package func enter() async throws {
    try Task.checkCancellation()
    let id = lastID.add(1, ordering: .relaxed).newValue
    await withTaskCancellationHandler {
      await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
        let isWaiting = state.withLock { state -> Bool in
          if state.free > 0 {
            state.free -= 1
            return false
          }
          // The handler may have been called already.
          if Task.isCancelled {
            state.refused.insert(id)
            return false
          }
          state.waiting.append((id, continuation))
          return true
        }
        if !isWaiting { continuation.resume() }
      }
    } onCancel: {
      refuse(id)
    }
    if state.withLock({ $0.refused.remove(id) }) != nil { throw CancellationError() }
  }

  /// Counts the caller out, in whose stead the next one begins.
  package func leave() {
    let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
      if state.waiting.isEmpty {
        state.free += 1
        return nil
      }
      return state.waiting.removeFirst().continuation
    }
    next?.resume()
  }

  /// Ends the wait of a caller, if it still waits.
  private func refuse(_ id: Int) {
    let refused = state.withLock { state -> CheckedContinuation<Void, Never>? in
      guard let index = state.waiting.firstIndex(where: { $0.id == id }) else { return nil }
      state.refused.insert(id)
      return state.waiting.remove(at: index).continuation
    }
    refused?.resume()
  }
}
