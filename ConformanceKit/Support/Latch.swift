import Foundation

/// A latch that threads can wait for.
final class Latch: @unchecked Sendable {
  // Safe to share: the state is only accessed between lock() and unlock().
  private let condition = NSCondition()
  private var isSignaled = false

  /// The interval at which a waiting thread checks the latch.
  static let look = Duration.milliseconds(100)

  func signal() {
    condition.lock()
    isSignaled = true
    condition.broadcast()
    condition.unlock()
  }

  /// Blocks the thread until the latch has been signaled, or for this long. Returns whether it has been signaled.
  ///
  /// It checks the latch at intervals, because a condition waits by the wall clock, which may be set, and because time
  /// in which the process is stopped must not count.
  func wait(for duration: Duration) -> Bool {
    var limit = RunningTimeLimit(duration, longestInterval: Self.look * 2)
    condition.lock()
    defer { condition.unlock() }
    while !isSignaled, !limit.isOver() {
      _ = condition.wait(until: Date(timeIntervalSinceNow: min(limit.left, Self.look).inSeconds))
    }
    return isSignaled
  }
}

extension Latch {
  /// Suspends the task until the latch has been signaled, or for this long. Returns whether it has been signaled.
  ///
  /// A new thread waits, so that neither the caller's thread nor one of the cooperative pool is blocked.
  func waitElsewhere(for duration: Duration) async -> Bool {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { [self] in continuation.resume(returning: wait(for: duration)) }
    }
  }
}

/// A barrier for bodies of transactions, so that they overlap if the engine allows it.
///
/// Without it, two short transactions only overlap by chance, and hardly ever on a busy machine.
final class BodyBarrier: Sendable {
  private let expected: Int
  private let arrived = AtomicCounter()
  private let isComplete = Latch()

  init(of expected: Int = 2) { self.expected = expected }

  /// Blocks the thread until the expected number has arrived, but for at most 50 ms, because an engine may run one body
  /// after the other. Later arrivals are not blocked.
  func arrive() {
    if arrived.increment() >= expected || !isComplete.wait(for: .milliseconds(50)) { isComplete.signal() }
  }
}
