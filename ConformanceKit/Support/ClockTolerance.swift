#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How much a timestamp may differ from what it was before the engine was closed, in seconds: an engine may store it as a
/// number with as many digits, and answer with what it remembers while it is open.
let precisionOfTime = 0.000_001

extension Date {
  /// Whether it may be the same time, read again from what is stored.
  func isAbout(_ other: Date) -> Bool { abs(timeIntervalSince(other)) <= 2 * precisionOfTime }
}

/// How much a timestamp may differ from the clock: the 2 ms of rule W2, plus the suite's tolerance for the
/// clock of another machine.
enum ClockTolerance {
  @TaskLocal static var seconds = 0.002
}

/// The clock readings around a call, with the tolerance on both sides.
func window<Result>(_ call: () async throws -> Result) async throws -> ClosedRange<Date> {
  let before = Date()
  _ = try await call()
  let after = Date()
  // The clock may be set back at any time.
  let tolerance = ClockTolerance.seconds
  return min(before, after).addingTimeInterval(-tolerance)...max(before, after).addingTimeInterval(tolerance)
}

/// Waits until the clock shows a time that differs from now by more than the tolerance of rule W2.
func letClockAdvance() async throws {
  let start = ContinuousClock.now
  while ContinuousClock.now - start < .milliseconds(6) { try await Task.sleep(for: .milliseconds(1)) }
}
