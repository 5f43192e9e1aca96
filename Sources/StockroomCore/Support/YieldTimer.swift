/// Determines when a long call on the cooperative pool yields to other tasks (rule C5).
///
/// A call that never suspends keeps its thread of the pool, and as many such calls as there are processors
/// keep all threads. So a call that reads many entries begins with ``yield()`` and calls ``yieldIfDue()``
/// between portions of them.
@usableFromInline package struct YieldTimer: ~Copyable {
  /// The maximum time for which a call may keep its thread.
  private static let slice = Duration.milliseconds(10)

  private var end = ContinuousClock.now

  package init() {}

  /// Yields to every task that is ready to run.
  ///
  /// - Throws: `CancellationError` if the task has been cancelled.
  package mutating func yield() async throws {
    try Task.checkCancellation()
    await Task.yield()
    end = .now + Self.slice
  }

  /// Whether this call has kept its thread for long enough.
  package var isDue: Bool { ContinuousClock.now >= end }

  /// Yields to other tasks if this call has kept its thread for long enough.
  ///
  /// - Throws: `CancellationError` if the task has been cancelled.
  @usableFromInline package mutating func yieldIfDue() async throws {
    try Task.checkCancellation()
    if isDue { try await yield() }
  }
}
