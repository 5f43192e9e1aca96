import StockroomCSupport

/// Determines when a long call on the cooperative pool yields to other tasks (rule C5).
///
/// A call that never suspends keeps its thread of the pool, and as many such calls as there are processors
/// keep all threads. So a call that reads many entries begins with ``start()`` and calls ``yieldIfDue()``
/// between portions of them.
@usableFromInline package struct YieldTimer: ~Copyable {
  /// The maximum time for which a call may keep its thread.
  private static let slice = Duration.milliseconds(10)

  private static let origin = ContinuousClock.now

  private var end = ContinuousClock.now

  package init() {}

  /// Starts the call's time, and yields, unless a call on this thread has started in this millisecond: a yield takes as long as reading
  /// dozens of entries. Without it, short calls in a loop would never yield.
  ///
  /// - Throws: `CancellationError` if the task has been cancelled.
  package mutating func start() async throws {
    try Task.checkCancellation()
    var now = ContinuousClock.now
    if stockroom_is_new_time_of_thread(Int64(max(.zero, now - Self.origin) / .milliseconds(1))) {
      await Task.yield()
      now = .now
    }
    end = now + Self.slice
  }

  /// Whether this call has kept its thread for long enough.
  package var isDue: Bool { ContinuousClock.now >= end }

  /// Yields to other tasks if this call has kept its thread for long enough.
  ///
  /// - Throws: `CancellationError` if the task has been cancelled.
  @usableFromInline package mutating func yieldIfDue() async throws {
    try Task.checkCancellation()
    guard isDue else { return }
    await Task.yield()
    end = .now + Self.slice
  }
}
