/// A limit on the running time of this process, for a loop that polls.
///
/// A process may be stopped, or get no processor, for seconds between two looks, and what it waits for with it. Of that time no more
/// counts than a look takes at most.
struct RunningTimeLimit: Sendable {
  private let longestLook: Duration
  /// The time that is left, as of the last look.
  private(set) var left: Duration
  private var last: ContinuousClock.Instant

  /// - Parameter longestLook: How much time between two looks counts at most: more than the loop pauses in each iteration.
  init(
    _ limit: Duration, from start: ContinuousClock.Instant = .now, longestLook: Duration = .milliseconds(20)
  ) {
    (self.longestLook, left, last) = (longestLook, limit, start)
  }

  /// Whether the time is over. Must be read once in each iteration of the loop.
  mutating func isOver(at now: ContinuousClock.Instant = .now) -> Bool {
    left -= min(last.duration(to: now), longestLook)
    last = now
    return left <= .zero
  }
}
