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

/// The clock of a history in one process. Every reading is one step later than the previous one, in all tasks.
final class StepClock: HistoryClock {
  private let steps = Atomic(0)

  func begin() -> Int { step() }

  func end() -> Int { step() }

  /// The ordering keeps the operations of a call between the readings around it, at the cost of one instruction.
  @discardableResult
  func step() -> Int { steps.wrappingAdd(1, ordering: .acquiringAndReleasing).newValue }

  /// The number of steps so far.
  var now: Int { steps.load(ordering: .acquiring) }
}

/// The clock of a history in several processes: the system's monotonic clock, which all of them share and which is
/// never set.
///
/// The duration of a call is rounded up, because processors may read the clock a few nanoseconds apart. Calls with
/// almost equal times then overlap.
struct MonotonicClock: HistoryClock {
  /// The error of a reading in nanoseconds.
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
