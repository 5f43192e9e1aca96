import Foundation

/// A latch that threads can wait for.
final class Latch: @unchecked Sendable {
  // Safe to share: the state is touched only between lock() and unlock().
  private let condition = NSCondition()
  private var isSignaled = false

  /// How long a thread that waits pauses between two looks.
  static let look = Duration.milliseconds(100)

  func signal() {
    condition.lock()
    isSignaled = true
    condition.broadcast()
    condition.unlock()
  }

  /// Holds the thread until the latch has been signaled, or for so long. Returns whether it has been.
  ///
  /// It looks now and then, as the wall clock by which a condition waits may be set, and as the process may be stopped: whoever is to
  /// signal does not run then either.
  func wait(for duration: Duration) -> Bool {
    var limit = RunningTimeLimit(duration, longestLook: Self.look * 2)
    condition.lock()
    defer { condition.unlock() }
    while !isSignaled, !limit.isOver() {
      _ = condition.wait(until: Date(timeIntervalSinceNow: min(limit.left, Self.look).inSeconds))
    }
    return isSignaled
  }
}

extension Latch {
  /// Suspends the task until the latch has been signaled, or for so long. Returns whether it has been.
  ///
  /// A thread of its own waits, so that neither the caller's thread nor one of the cooperative pool is held.
  func waitElsewhere(for duration: Duration) async -> Bool {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { [self] in continuation.resume(returning: wait(for: duration)) }
    }
  }
}

/// A meeting point at which bodies of transactions wait for each other, so that they overlap if the engine
/// allows it.
///
/// Without it, chance decides whether two short transactions meet, and on a busy machine they hardly ever do.
final class Meeting: Sendable {
  private let expected: Int
  private let arrived = AtomicCounter()
  private let isComplete = Latch()

  init(of expected: Int = 2) { self.expected = expected }

  /// Holds the thread until as many have arrived as are expected, for a moment at most: an engine that runs one body after
  /// the other lets them come one by one. Nobody who comes later is held.
  func arrive() {
    if arrived.increment() >= expected || !isComplete.wait(for: .milliseconds(50)) { isComplete.signal() }
  }
}
