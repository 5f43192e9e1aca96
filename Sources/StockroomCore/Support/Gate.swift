/// Counts the calls in progress in an engine, so that closing can wait for them (rule O3).
package final class Gate: Sendable {
  private struct State {
    var isOpen = true
    var isReleased = false
    var inside = 0
    var closer: CheckedContinuation<Void, Never>?
    var latecomers: [CheckedContinuation<Void, Never>] = []
  }

  private let state = MutexProtected(State())
  /// The path of the engine's place.
  package let path: String

  /// Creates a gate for an engine that is open on `path`.
  package init(path: String) { self.path = path }

  /// Admits a call, which must call ``leave()`` when it is done.
  ///
  /// - Throws: ``StorageError`` with code `closed` once closing has begun.
  package func enter() throws {
    let isOpen = state.withLock { state in
      if state.isOpen { state.inside += 1 }
      return state.isOpen
    }
    guard isOpen else { throw StorageError(.closed, "The engine on \(path) has been closed.") }
  }

  package func leave() {
    let closer = state.withLock { state in
      state.inside -= 1
      return state.inside == 0 ? state.closer.take() : nil
    }
    closer?.resume()
  }

  /// Calls `body`. Closing waits until it has returned.
  ///
  /// - Throws: ``StorageError`` with code `closed` once closing has begun; what `body` throws.
  package func whileOpen<Result>(_ body: () async throws -> Result) async throws -> Result {
    try enter()
    defer { leave() }
    return try await body()
  }

  /// Admits no more calls, waits until those in progress have left, then calls `release`.
  ///
  /// Only the first call does so. Every other one returns once the first one has finished.
  package func close(releasing release: () async throws -> Void) async throws {
    let isFirst = state.withLock { state in
      defer { state.isOpen = false }
      return state.isOpen
    }
    guard isFirst else {
      await wait { state, continuation in
        if state.isReleased { return false }
        state.latecomers.append(continuation)
        return true
      }
      return
    }
    await wait { state, continuation in
      if state.inside == 0 { return false }
      state.closer = continuation
      return true
    }
    defer {
      let latecomers = state.withLock { state in
        state.isReleased = true
        defer { state.latecomers = [] }
        return state.latecomers
      }
      for latecomer in latecomers { latecomer.resume() }
    }
    try await release()
  }

  /// Suspends until the continuation is resumed. Returns immediately if `enqueue` returns false because it has not stored the
  /// continuation.
  private func wait(
    enqueue: @Sendable (inout sending State, CheckedContinuation<Void, Never>) -> Bool
  ) async {
    await withCheckedContinuation { continuation in
      let isWaiting = state.withLock { enqueue(&$0, continuation) }
      if !isWaiting { continuation.resume() }
    }
  }
}
