import StockroomCore

#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// What an ``ExpiringEngine`` takes the time from: the ``system``, or something that a test moves by hand.
public struct ExpiryClock: Sendable {
  fileprivate let now: @Sendable () -> Timestamp
  fileprivate let uptime: @Sendable () -> Duration

  /// The system's clock, which may be set, and the one beside it that nobody can set.
  public static let system = {
    let start = ContinuousClock.now
    return ExpiryClock(now: { Timestamp.now() }, uptime: { ContinuousClock.now - start })
  }()

  /// A clock for tests.
  ///
  /// - Parameters:
  ///   - now: What time it is. May go forward and back.
  ///   - uptime: How much time has passed since some moment. Never goes back.
  public init(now: @escaping @Sendable () -> Date, uptime: @escaping @Sendable () -> Duration) {
    self.init(now: { Timestamp(now()) }, uptime: uptime)
  }

  private init(now: @escaping @Sendable () -> Timestamp, uptime: @escaping @Sendable () -> Duration) {
    (self.now, self.uptime) = (now, uptime)
  }
}

/// The time by which entries expire, which never goes back: at least as much passes as by the clock that nobody can set, and no less than
/// the other one is set forward.
final class ExpiryTime: Sendable {
  private struct State {
    /// The time by the clock.
    var measured: Timestamp
    /// The time by the clock, or a later one that was noted.
    var latest: Timestamp
    var uptime: Duration

    mutating func advance(to time: Timestamp, _ uptime: Duration) {
      // Another thread may have been here in between.
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

  /// The time that decides what is read.
  func now() -> Timestamp { advanced().latest }

  /// The time by the clock alone, which decides what is removed for good, and how late an entry may have been written for its time to be
  /// noted: one that is corrupted, or from a machine whose clock is years ahead, decides about no other entry.
  func measured() -> Timestamp { advanced().measured }

  /// It is at least so late: an entry was written then.
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
  /// The moment that is so much later, or the nearest that can be stored.
  func advanced(by duration: Duration) -> Timestamp {
    let (seconds, attoseconds) = duration.components
    let farthest = Timestamp(nanoseconds: seconds > 0 ? .max : .min)
    let (whole, isTooLong) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    let (amount, isTooMuch) = whole.addingReportingOverflow(attoseconds / 1_000_000_000)
    let (sum, isTooLate) = nanoseconds.addingReportingOverflow(amount)
    return isTooLong || isTooMuch || isTooLate ? farthest : Timestamp(nanoseconds: sum)
  }
}
