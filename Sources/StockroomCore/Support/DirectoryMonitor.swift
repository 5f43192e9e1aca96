import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Determines when the files of an open database must be compared with those that were opened (rule C6).
///
/// Creating, renaming and deleting a name changes the time of the directory, and so does moving or deleting the directory itself.
/// So one `fstat` shows that nothing has happened. Neither moving a directory further up nor truncating a file changes that time,
/// so the files are also compared once the last comparison is 0.2 ms old.
package final class DirectoryMonitor: Sendable {
  /// The state that was observed before the files were compared.
  package struct Observation: Sendable {
    /// Whether names may have been added or removed. If not, only a directory further up may have been moved.
    package let mayDifferInNames: Bool
    fileprivate let change: Int64
    fileprivate let isLastChange: Bool
    fileprivate let time: UInt64
  }

  /// The time after a change of a directory in which another change may have the same timestamp: more than a
  /// tick of the kernel's clock, or in file systems that store whole seconds, more than the two seconds of
  /// the coarsest.
  private static let tick: Int64 = 50_000_000, coarseTick: Int64 = 2_500_000_000
  /// How long a comparison is valid if the directory does not change. A comparison takes a hundredth of that time.
  private static let interval: UInt64 = 200_000
  /// How long one `fstat` is valid, if the caller allows that. Renaming a directory takes longer (4 µs on
  /// tmpfs, 7 on ext4), so a task that renames it and then reads never uses an earlier check.
  private static let shortInterval: UInt64 = 3_000

  private let directory: FileDescriptor
  /// When the directory was last changed, in nanoseconds, if the files have been compared since and another change cannot
  /// have the same time.
  private let confirmedChange = Atomic<Int64>(.min)
  /// When the files must be compared again, on the monotonic clock, in nanoseconds.
  private let nextComparison = Atomic<UInt64>(0)
  private let nextObservation = Atomic<UInt64>(0)

  /// - Throws: ``StorageError`` that names the path.
  package init(path: String) throws {
    directory = try FileDescriptor.openDirectory(atPath: path)
  }

  /// The descriptor of the directory.
  package var descriptor: Int32 { directory.number }

  /// Closes the directory, after which ``observe(isThorough:isFrequent:)`` throws, except a frequent call within 3 µs of the last
  /// check. May be called twice.
  package func close() { directory.release() }

  /// Returns nil if nothing has changed since ``confirm(_:)`` was last called. Otherwise the files must be
  /// compared, and if they match, the observation must be confirmed.
  ///
  /// - Parameters:
  ///   - isThorough: Whether the result is never nil, so that a change of a directory further up is detected
  ///     immediately.
  ///   - isFrequent: Whether the caller's work takes hardly longer than a check of the directory. Such
  ///     callers share one check within 3 µs.
  /// - Throws: ``StorageError`` with code `io`.
  package func observe(isThorough: Bool = false, isFrequent: Bool = false) throws -> Observation? {
    let now = Self.now(CLOCK_MONOTONIC)
    if isFrequent, now < nextObservation.load(ordering: .relaxed) { return nil }
    let change = try directory.status().changed.nanoseconds
    let isConfirmed = change == confirmedChange.load(ordering: .relaxed)
    if isConfirmed, !isThorough, now < nextComparison.load(ordering: .relaxed) {
      nextObservation.store(now + Self.shortInterval, ordering: .relaxed)
      return nil
    }
    let tick = change.isMultiple(of: 1_000_000_000) ? Self.coarseTick : Self.tick
    let isLastChange = Int64(clamping: Self.now(CLOCK_REALTIME)) &- change > tick
    return Observation(
      mayDifferInNames: !isConfirmed, change: change, isLastChange: isLastChange, time: now)
  }

  /// Call it when the files have been compared after the observation, and match.
  package func confirm(_ observation: Observation) {
    confirmedChange.store(observation.isLastChange ? observation.change : .min, ordering: .relaxed)
    nextComparison.store(observation.time + Self.interval, ordering: .relaxed)
    nextObservation.store(observation.time + Self.shortInterval, ordering: .relaxed)
  }

  private static func now(_ clock: clockid_t) -> UInt64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return UInt64(clamping: time.tv_sec) &* 1_000_000_000 &+ UInt64(clamping: time.tv_nsec)
  }
}
