/// Work that is shared by all callers that request it while it is in progress.
///
/// A cancelled caller throws `CancellationError` immediately, and the work continues for the others. If there
/// is no other caller, the work is cancelled, and the caller waits for its end: when the last call has ended,
/// nothing is in progress, and nothing that the work has captured is retained.
package final class SingleFlight<Success: Sendable>: Sendable {
  package typealias Work = @Sendable () async throws -> Success
  private typealias Caller = CheckedContinuation<Success, any Error>

  private struct Run {
    let task: Task<Void, Never>
    var priority: TaskPriority
    var callers: [Int: Caller] = [:]
  }

  private struct State {
    var nextID = 0
    var runs: [Int: Run] = [:]
    /// The work that new callers share; nil if there is none, or it has been cancelled.
    var current: Int?

    mutating func newID() -> Int {
      defer { nextID += 1 }
      return nextID
    }
  }

  private let state = MutexProtected(State())

  package init() {}

  /// Starts the work, after the end of any cancelled work, or shares the work in progress.
  ///
  /// The work runs with the task-local values of the call that starts it, and with the highest priority of
  /// its callers.
  ///
  /// - Throws: what the work throws; `CancellationError`.
  package func value(of work: @escaping Work) async throws -> Success {
    try Task.checkCancellation()
    let id = state.withLock { $0.newID() }
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        join(id, continuation, work)
        // The handler may have run before.
        if Task.isCancelled { leave(id) }
      }
    } onCancel: {
      leave(id)
    }
  }

  private func join(_ id: Int, _ caller: Caller, _ work: @escaping Work) {
    let urgent = state.withLock { state -> Task<Void, Never>? in
      let priority = Task.currentPriority
      if let current = state.current {
        state.runs[current]?.callers[id] = caller
        guard let run = state.runs[current], run.priority < priority else { return nil }
        state.runs[current]?.priority = priority
        return run.task
      }
      let number = state.newID()
      let cancelled = state.runs.values.map(\.task)
      // The task still exists briefly after its callers have been resumed, and must not retain objects that they may release.
      let pending = MutexProtected<Work?>(work)
      let task = Task {
        for task in cancelled { await task.value }
        end(number, await Self.result(of: pending))
      }
      state.runs[number] = Run(task: task, priority: priority, callers: [id: caller])
      state.current = number
      return nil
    }
    // The runtime raises the priority of an awaited task.
    if let urgent { Task.detached(priority: Task.currentPriority) { await urgent.value } }
  }

  private static func result(
    of pending: borrowing MutexProtected<Work?>
  ) async -> Result<Success, any Error> {
    let work = pending.withLock { $0.take() }
    do {
      // All callers may have left while it waited.
      guard let work, !Task.isCancelled else { throw CancellationError() }
      return .success(try await work())
    } catch {
      return .failure(error)
    }
  }

  private func leave(_ id: Int) {
    let (caller, task) = state.withLock { state -> (Caller?, Task<Void, Never>?) in
      guard let number = state.current, let run = state.runs[number], run.callers[id] != nil else {
        return (nil, nil)
      }
      if run.callers.count > 1 { return (state.runs[number]?.callers.removeValue(forKey: id), nil) }
      state.current = nil
      return (nil, run.task)
    }
    caller?.resume(throwing: CancellationError())
    task?.cancel()
  }

  private func end(_ number: Int, _ result: Result<Success, any Error>) {
    let run = state.withLock { state in
      if state.current == number { state.current = nil }
      return state.runs.removeValue(forKey: number)
    }
    for caller in (run?.callers ?? [:]).values { caller.resume(with: result) }
  }
}
