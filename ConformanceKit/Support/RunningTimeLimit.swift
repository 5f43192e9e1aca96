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
  ///
  /// - Parameter isDelayed: Whether the process waited for the machine in this iteration, which then does not count.
  mutating func isOver(at now: ContinuousClock.Instant = .now, isDelayed: Bool = false) -> Bool {
    if !isDelayed { left -= min(last.duration(to: now), longestInterval) }
    last = now
    return left <= .zero
  }
}

/// Tells a loop that polls whether the machine delays this process: whether a thread of it waits for a processor that
/// other processes use, or for a disk. A hanging engine waits for neither.
struct ProcessDelays {
  private let longestInterval: Duration
  /// The remaining time in which the process may be delayed.
  private var left: Duration
  private var last: (time: ContinuousClock.Instant, processorTime: Duration)

  /// - Parameters:
  ///   - limit: How long the process may be delayed. Afterwards it never is.
  ///   - longestInterval: The maximum time that counts for each iteration.
  init(atMost limit: Duration, longestInterval: Duration) {
    (left, self.longestInterval) = (limit, longestInterval)
    last = (.now, System.processorTime)
  }

  /// Whether the process was delayed since the last call.
  mutating func isDelayed() -> Bool {
    let now = (time: ContinuousClock.now, processorTime: System.processorTime)
    defer { last = now }
    let interval = last.time.duration(to: now.time)
    guard left > .zero, now.processorTime - last.processorTime < interval / 2,
      System.hasAnotherThread(in: "RD")
    else { return false }
    left -= min(interval, longestInterval)
    return true
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
