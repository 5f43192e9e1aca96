/// A limit on the running time of this process, for a loop that polls.
///
/// A process may be stopped, or get no processor, for seconds between two looks, and what it waits for with it. Of that time no more
/// counts than a look takes at most.
struct RunningTimeLimit: Sendable {
  private static let longestLook = Duration.milliseconds(20)

  private var left: Duration
  private var last: ContinuousClock.Instant

  init(_ limit: Duration, from start: ContinuousClock.Instant = .now) { (left, last) = (limit, start) }

  /// Whether the time is over. Must be read once in each iteration of the loop.
  mutating func isOver(at now: ContinuousClock.Instant = .now) -> Bool {
    left -= min(last.duration(to: now), Self.longestLook)
    last = now
    return left <= .zero
  }
}
