import StockroomCore

/// A task that wants to run each millisecond on the cooperative pool, and notes how long it was kept from it: what an
/// engine does to everybody else (rule C5).
struct Heartbeat: Sendable {
  private static let interval = Duration.milliseconds(1)

  private let task: Task<Double?, Never>

  init() {
    let clock = ContinuousClock()
    let start = clock.now
    task = Task.detached {
      var due = start + Self.interval
      var longest: Duration?
      var isOver = false
      while !isOver {
        // Throws only when it is over, perhaps before this beat was due.
        do { try await clock.sleep(until: due, tolerance: .zero) } catch { isOver = true }
        let now = clock.now
        guard now >= due else { break }
        longest = Swift.max(longest ?? .zero, now - due)
        due = now + Self.interval
      }
      return longest?.inSeconds
    }
  }

  /// Ends it. Gives the longest delay in seconds; nil if it was over before the first beat was due.
  func stop() async -> Double? {
    task.cancel()
    return await task.value
  }
}
