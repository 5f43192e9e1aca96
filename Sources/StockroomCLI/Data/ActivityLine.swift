import Foundation
import StockroomCore

/// The progress line of a command that reads or writes a place: the activity, its progress and the elapsed time. It
/// appears after a second.
final class ActivityLine: Sendable {
  private let line = ProgressLine()
  private let title: String
  private let start = ContinuousClock.now
  /// Nil once the line has been removed.
  private let detail = MutexProtected<String?>("")

  private init(_ title: String) { self.title = title }

  /// Calls `body` with a line that is redrawn every second, and removed at the end.
  static func whileShown<Result>(
    _ title: String, _ body: (ActivityLine) async throws -> Result
  ) async throws -> Result {
    let line = ActivityLine(title)
    defer { line.clear() }
    return try await ProgressLine.redrawing({ line.draw() }) { try await body(line) }
  }

  /// Sets the progress that is shown from the next redraw on.
  func show(_ text: String) { detail.withLock { $0 = text } }

  private func draw() {
    // The lock is held, so that nothing is drawn after the line has been removed.
    detail.withLock { detail in
      guard let detail else { return }
      let seconds = start.duration(to: .now).components.seconds
      line.show("\(title)\(detail.isEmpty ? "" : ", \(detail)"), \(seconds) s")
    }
  }

  private func clear() {
    detail.withLock {
      $0 = nil
      line.clear()
    }
  }
}
