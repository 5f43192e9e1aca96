#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// How much a timestamp may change when the engine is closed and reopened, in seconds. An engine may store it as a
/// number with limited precision, and return a cached time while it is open.
let precisionOfTime = 0.000_001

extension Date {
  /// Whether both may be the same time, one of them after storing.
  func isAbout(_ other: Date) -> Bool { abs(timeIntervalSince(other)) <= 2 * precisionOfTime }
}

/// How much a timestamp may differ from the clock: the 2 ms of rule W2, plus the suite's tolerance for the clock of
/// another machine.
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

/// Waits until the clock differs from its present time by more than the tolerance of rule W2.
func letClockAdvance() async throws {
  let start = ContinuousClock.now
  while ContinuousClock.now - start < .milliseconds(6) { try await Task.sleep(for: .milliseconds(1)) }
}
