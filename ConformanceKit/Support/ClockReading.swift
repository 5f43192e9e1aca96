#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A reading of the machine's clock, to find out later whether the clock has been set.
struct ClockReading: Sendable {
  let date: Date
  let moment: ContinuousClock.Instant

  init(date: Date = Date(), at moment: ContinuousClock.Instant = .now) {
    (self.date, self.moment) = (date, moment)
  }

  /// Whether the later reading differs from the elapsed time by more than slewing of the clock and the duration of a
  /// reading explain.
  func isOff(from later: ClockReading) -> Bool {
    let elapsed = moment.duration(to: later.moment).inSeconds
    return abs(later.date.timeIntervalSince(date) - elapsed) > 0.001_5 + elapsed / 1_000
  }
}
