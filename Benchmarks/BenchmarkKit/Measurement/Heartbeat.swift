/// A task on the cooperative pool that is due every millisecond, and the longest delay of it: the time for which an
/// engine blocks other tasks (rule C5).
struct Heartbeat: Sendable {
  private static let interval = Duration.milliseconds(1)

  private let task: Task<Double?, Never>

  /// Starts the task. Returns once it is running.
  init() async {
    let (beginning, continuation) = AsyncStream<Void>.makeStream()
    task = Task.detached {
      continuation.finish()
      let clock = ContinuousClock()
      var due = clock.now + Self.interval
      var longest: Duration?
      var isStopped = false
      while !isStopped {
        // Throws when the task is cancelled, which can be before `due`.
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

  /// Stops the task. Returns the longest delay in seconds; nil if it has not been due yet.
  func stop() async -> Double? {
    task.cancel()
    return await task.value
  }
}
