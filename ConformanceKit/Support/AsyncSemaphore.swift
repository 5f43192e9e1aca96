#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Limits the number of checks that run at the same time.
///
/// A test framework may start hundreds of checks at once. Running concurrently, each would take minutes, and
/// none could distinguish an engine that hangs from one that shares two processors with all others.
final class AsyncSemaphore: Sendable {
  /// The semaphore of all checks in the process. Its width exceeds the number of processors, because engines wait for
  /// disks.
  static let shared = AsyncSemaphore(width: 4 * ProcessInfo.processInfo.activeProcessorCount + 2)

  private struct State {
    var free: Int
    /// In order of arrival.
    var waiting: [(permits: Int, continuation: CheckedContinuation<Void, Never>)] = []
  }

  /// The number of permits.
  let width: Int
  private let state: MutexProtected<State>

  init(width: Int) {
    self.width = width
    state = MutexProtected(State(free: width))
  }

  /// Runs the work when a permit is available.
  func pass<Result>(_ work: () async -> Result) async -> Result {
    await enter()
    let result = await work()
    leave()
    return result
  }

  /// Waits until this many permits are free and all earlier waiters have theirs, and takes them.
  func enter(_ permits: Int = 1) async {
    await withCheckedContinuation { continuation in
      let mayEnter = state.withLock { state in
        guard state.waiting.isEmpty, state.free >= permits else {
          state.waiting.append((permits, continuation))
          return false
        }
        state.free -= permits
        return true
      }
      if mayEnter { continuation.resume() }
    }
  }

  /// Releases this many permits.
  func leave(_ permits: Int = 1) {
    let next = state.withLock { state in
      state.free += permits
      var next: [CheckedContinuation<Void, Never>] = []
      while let first = state.waiting.first, first.permits <= state.free {
        state.free -= first.permits
        next.append(state.waiting.removeFirst().continuation)
      }
      return next
    }
    for continuation in next { continuation.resume() }
  }
}
