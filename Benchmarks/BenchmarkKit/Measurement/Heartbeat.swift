import StockroomCore

/// A task that wants to run each millisecond on the cooperative pool, and notes how long it was kept from it: what an
/// engine does to everybody else (rule C5).
struct Heartbeat: Sendable {
  private static let interval = Duration.milliseconds(1)

  private let task: Task<Double, Never>

  init() {
    task = Task.detached {
      let clock = ContinuousClock()
      var longest = Duration.zero
      while !Task.isCancelled {
        let due = clock.now + Self.interval
        // Throws only when it is over.
        do { try await clock.sleep(until: due, tolerance: .zero) } catch { break }
        longest = max(longest, clock.now - due)
      }
      return longest.inSeconds
    }
  }

  /// Ends it. Gives the longest delay in seconds.
  func stop() async -> Double {
    task.cancel()
    return await task.value
  }
}
