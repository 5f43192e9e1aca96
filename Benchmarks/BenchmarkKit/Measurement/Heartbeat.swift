/// A task that is due every millisecond on the cooperative pool and measures its longest delay: how much an engine
/// blocks other tasks (rule C5).
struct Heartbeat: Sendable {
  private static let interval = Duration.milliseconds(1)

  private let task: Task<Double?, Never>

  /// Starts it. Returns once it runs.
  init() async {
    let (beginning, continuation) = AsyncStream<Void>.makeStream()
    task = Task.detached {
      continuation.finish()
      let clock = ContinuousClock()
      var due = clock.now + Self.interval
      var longest: Duration?
      var isStopped = false
      while !isStopped {
        // Throws when it is stopped, perhaps before this beat was due.
        do { try await clock.sleep(until: due, tolerance: .zero) } catch { isStopped = true }
        let now = clock.now
        guard now >= due else { break }
        longest = Swift.max(longest ?? .zero, now - due)
        due = now + Self.interval
      }
      return longest?.inSeconds
    }
    for await _ in beginning {}
  }

  /// Stops it. Returns the longest delay in seconds; nil if the first beat was not due yet.
  func stop() async -> Double? {
    task.cancel()
    return await task.value
  }
}
