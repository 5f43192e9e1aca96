import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A clock that orders calls.
protocol HistoryClock: Sendable {
  /// A reading before a call.
  func begin() -> Int

  /// A reading after a call.
  func end() -> Int
}

/// The clock of a history in one process: every reading is one step later than the one before, whichever task reads it.
final class StepClock: HistoryClock {
  private let steps = Atomic(0)

  func begin() -> Int { step() }

  func end() -> Int { step() }

  /// The ordering keeps the work of a call between the readings around it, and costs the tasks one instruction.
  @discardableResult
  func step() -> Int { steps.wrappingAdd(1, ordering: .acquiringAndReleasing).newValue }

  /// How many steps there have been.
  var now: Int { steps.load(ordering: .acquiring) }
}

/// The clock of a history in several processes: the system's, which is one for all of them and is never set.
///
/// A call is taken to last a little longer than it did, so that it does not matter to a few nanoseconds when a processor
/// reads the clock. What seems to be at the same time overlaps.
struct MonotonicClock: HistoryClock {
  /// By how many nanoseconds a reading may be off.
  private static let tolerance = 500

  func begin() -> Int { Self.nanoseconds - Self.tolerance }

  func end() -> Int { Self.nanoseconds + Self.tolerance }

  /// The system's reading.
  static var nanoseconds: Int {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Int(time.tv_sec) * 1_000_000_000 + Int(time.tv_nsec)
  }
}
