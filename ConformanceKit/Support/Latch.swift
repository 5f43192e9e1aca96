import Foundation

/// Something that a thread waits for.
final class Latch: @unchecked Sendable {
  // Safe to share: the state is touched only between lock() and unlock().
  private let condition = NSCondition()
  private var isSignaled = false

  func signal() {
    condition.lock()
    isSignaled = true
    condition.broadcast()
    condition.unlock()
  }

  /// Holds the thread until the latch has been signaled, or for so long. Returns whether it has been.
  ///
  /// It looks every second, as the wall clock by which a condition waits may be set.
  func wait(for duration: Duration) -> Bool {
    let end = ContinuousClock.now + duration
    condition.lock()
    defer { condition.unlock() }
    while !isSignaled, case let remaining = ContinuousClock.now.duration(to: end), remaining > .zero {
      _ = condition.wait(until: Date(timeIntervalSinceNow: min(remaining.inSeconds, 1)))
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
