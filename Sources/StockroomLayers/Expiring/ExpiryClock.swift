import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// The clock of an ``ExpiringEngine``: the ``system`` clock, or one that a test sets.
public struct ExpiryClock: Sendable {
  fileprivate let now: @Sendable () -> Timestamp
  fileprivate let uptime: @Sendable () -> Duration

  /// The system's wall clock, which can be set, and its monotonic clock, which cannot.
  public static let system = {
    let start = ContinuousClock.now
    return ExpiryClock(now: { Timestamp.now() }, uptime: { ContinuousClock.now - start })
  }()

  /// A clock for tests.
  ///
  /// - Parameters:
  ///   - now: The time of the wall clock. May go forward and back.
  ///   - uptime: The time since a fixed point, by the monotonic clock. Never goes back.
  public init(now: @escaping @Sendable () -> Date, uptime: @escaping @Sendable () -> Duration) {
    self.init(now: { Timestamp(now()) }, uptime: uptime)
  }

  private init(now: @escaping @Sendable () -> Timestamp, uptime: @escaping @Sendable () -> Duration) {
    (self.now, self.uptime) = (now, uptime)
  }
}

/// The time by which entries expire. It never goes back: it advances at least as far as the monotonic clock, and follows the wall
/// clock when that is ahead.
final class ExpiryTime: Sendable {
  private struct State {
    /// The time by the clocks alone.
    var measured: Timestamp
    /// The time by the clocks, or the time of a noted write if that is later.
    var latest: Timestamp
    var uptime: Duration

    mutating func advance(to time: Timestamp, _ uptime: Duration) {
      // Another thread may have advanced to a later uptime in the meantime.
      let passed = max(.zero, uptime - self.uptime)
      measured = max(time, measured.advanced(by: passed))
      latest = max(measured, latest.advanced(by: passed))
      self.uptime += passed
    }
  }

  private let state: MutexProtected<State>
  private let clock: ExpiryClock

  init(_ clock: ExpiryClock) {
    self.clock = clock
    let now = clock.now()
    state = MutexProtected(State(measured: now, latest: now, uptime: clock.uptime()))
  }

  /// The time that determines which entries are returned.
  func now() -> Timestamp { advanced().latest }

  /// The time by the clocks alone. It determines which entries are removed from the place, and up to which time the write of an
  /// entry is noted. So an entry whose time is corrupted, or was set by a machine whose clock is years ahead, affects no other
  /// entry.
  func measured() -> Timestamp { advanced().measured }

  /// Advances the time that ``now()`` returns to the time at which an entry was written.
  func note(_ time: Timestamp) {
    _ = advanced(noting: time)
  }

  private func advanced(noting noted: Timestamp? = nil) -> State {
    let (time, uptime) = (clock.now(), clock.uptime())
    return state.withLock { state in
      state.advance(to: time, uptime)
      if let noted { state.latest = max(state.latest, noted) }
      return state
    }
  }
}

extension Timestamp {
  /// The timestamp that is later by the duration, or the first or last one that can be represented.
  func advanced(by duration: Duration) -> Timestamp {
    let (seconds, attoseconds) = duration.components
    let farthest = Timestamp(nanoseconds: seconds > 0 ? .max : .min)
    let (whole, isTooLong) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    let (amount, isTooMuch) = whole.addingReportingOverflow(attoseconds / 1_000_000_000)
    let (sum, isTooLate) = nanoseconds.addingReportingOverflow(amount)
    return isTooLong || isTooMuch || isTooLate ? farthest : Timestamp(nanoseconds: sum)
  }
}
