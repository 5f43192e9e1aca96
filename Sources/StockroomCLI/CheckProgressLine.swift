import ConformanceKit
import StockroomCore

/// The progress line of a run of checks: the current check and, after a second, how long it has been running.
final class CheckProgressLine: Sendable {
  private let line = ProgressLine()
  private let current = MutexProtected<
    (engine: String, progress: ConformanceProgress, start: ContinuousClock.Instant)?
  >(nil)

  /// Calls `body` with a line that is redrawn every second, and removed at the end.
  static func whileShown<Result>(_ body: (CheckProgressLine) async throws -> Result) async throws -> Result {
    let line = CheckProgressLine()
    defer { line.clear() }
    return try await ProgressLine.redrawing({ line.draw() }) { try await body(line) }
  }

  /// Shows the progress of the checks of an engine.
  func show(_ progress: ConformanceProgress, of engine: String) {
    current.withLock { $0 = (engine, progress, .now) }
    draw()
  }

  private func draw() {
    // The lock is held, so that nothing is drawn after the line has been removed.
    current.withLock { current in
      guard let (engine, progress, start) = current, let check = progress.current else { return }
      line.show(
        Self.text(
          engine, number: progress.completed + 1, of: progress.total, check: check.id,
          for: start.duration(to: .now)))
    }
  }

  /// Removes the line, until another check is shown.
  func clear() {
    current.withLock {
      $0 = nil
      line.clear()
    }
  }

  /// The text of the line. Times of less than a second are omitted.
  static func text(_ engine: String, number: Int, of total: Int, check: String, for time: Duration) -> String
  {
    let (minutes, seconds) = time.components.seconds.quotientAndRemainder(dividingBy: 60)
    let elapsed = minutes > 0 ? ", \(minutes) min \(seconds) s" : seconds > 0 ? ", \(seconds) s" : ""
    return "\(engine), check \(number) of \(total)\(elapsed): \(check)"
  }
}
