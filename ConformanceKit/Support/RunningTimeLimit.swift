/// A limit on the running time of this process, for a loop that polls.
///
/// A process, and the work that it waits for, may be stopped or get no processor for seconds between two iterations.
/// Only ``longestLook`` of that time counts.
struct RunningTimeLimit: Sendable {
  private let longestLook: Duration
  /// The remaining time, as of the last iteration.
  private(set) var left: Duration
  private var last: ContinuousClock.Instant

  /// - Parameter longestLook: The maximum time that counts for each iteration: more than the loop pauses in it.
  init(
    _ limit: Duration, from start: ContinuousClock.Instant = .now, longestLook: Duration = .milliseconds(20)
  ) {
    (self.longestLook, left, last) = (longestLook, limit, start)
  }

  /// Whether the limit is reached. Must be called once in each iteration of the loop.
  mutating func isOver(at now: ContinuousClock.Instant = .now) -> Bool {
    left -= min(last.duration(to: now), longestLook)
    last = now
    return left <= .zero
  }
}
