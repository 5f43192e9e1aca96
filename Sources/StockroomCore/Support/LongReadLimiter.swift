import Synchronization

/// Limits the number of concurrent long reads of one place. The others wait, in the order of their calls.
///
/// Since long reads yield to one another, there could otherwise be as many as there are tasks, each with a
/// scarce resource: a connection with its descriptors, or a slot in a table of readers.
package final class LongReadLimiter: Sendable {
  private struct State {
    /// The number of reads that may begin. No read waits unless it is 0.
    var free: Int
    var waiting: [(id: Int, continuation: CheckedContinuation<Void, Never>)] = []
    /// Callers that are resumed without having been admitted. The continuation does not return that: see
    /// ``ThreadResult``.
    var refused: Set<Int> = []
  }

  private let state: MutexProtected<State>
  private let lastID = Atomic(0)

  /// - Parameter limit: The maximum number of concurrent reads. Beyond 32, waiting reads would not finish
  ///   earlier if they had begun.
  package init(limit: Int = 32) { state = MutexProtected(State(free: limit)) }

  /// Suspends until there are fewer long reads than the limit, and counts the caller, which must call
  /// ``leave()`` afterwards.
  ///
  /// - Throws: `CancellationError`, immediately, if the task is cancelled before that. The caller is then not
  ///   counted.
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

  /// Ends the read of the caller, so that the next one begins.
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

  /// Ends the wait of a caller, if it is still waiting.
  private func refuse(_ id: Int) {
    let refused = state.withLock { state -> CheckedContinuation<Void, Never>? in
      guard let index = state.waiting.firstIndex(where: { $0.id == id }) else { return nil }
      state.refused.insert(id)
      return state.waiting.remove(at: index).continuation
    }
    refused?.resume()
  }
}
