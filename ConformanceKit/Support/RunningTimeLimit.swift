import StockroomCore

/// A limit on the running time of this process, for a loop that polls.
///
/// A process, and the work that it waits for, may be stopped or get no processor for seconds between two iterations.
/// Only ``longestInterval`` of that time counts.
struct RunningTimeLimit: Sendable {
  private let longestInterval: Duration
  /// The remaining time, as of the last iteration.
  private(set) var left: Duration
  private var last: ContinuousClock.Instant

  /// - Parameter longestInterval: The maximum time that counts for each iteration: more than the loop pauses in it.
  init(
    _ limit: Duration, from start: ContinuousClock.Instant = .now,
    longestInterval: Duration = .milliseconds(20)
  ) {
    (self.longestInterval, left, last) = (longestInterval, limit, start)
  }

  /// Whether the limit is reached. Must be called once in each iteration of the loop.
  mutating func isOver(at now: ContinuousClock.Instant = .now) -> Bool {
    left -= min(last.duration(to: now), longestInterval)
    last = now
    return left <= .zero
  }
}

/// A limit on the running time of this process, for the loops of several tasks. Only a short time between two iterations
/// counts, whichever task they belong to.
final class SharedTimeLimit: Sendable {
  private let limit: MutexProtected<RunningTimeLimit>

  init(_ limit: Duration, from start: ContinuousClock.Instant = .now) {
    self.limit = MutexProtected(RunningTimeLimit(limit, from: start))
  }

  /// Whether the limit is reached. Must be called once in each iteration.
  func isOver(at now: ContinuousClock.Instant = .now) -> Bool { limit.withLock { $0.isOver(at: now) } }
}
