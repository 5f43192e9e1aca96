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
    var waiting: [(places: Int, continuation: CheckedContinuation<Void, Never>)] = []
  }

  /// The number of places.
  let width: Int
  private let state: MutexProtected<State>

  init(width: Int) {
    self.width = width
    state = MutexProtected(State(free: width))
  }

  /// Runs the work when a place is available.
  func pass<Result>(_ work: () async -> Result) async -> Result {
    await enter()
    let result = await work()
    leave()
    return result
  }

  /// Waits until this many places are free and all earlier waiters have theirs, and takes them.
  func enter(_ places: Int = 1) async {
    await withCheckedContinuation { continuation in
      let mayEnter = state.withLock { state in
        guard state.waiting.isEmpty, state.free >= places else {
          state.waiting.append((places, continuation))
          return false
        }
        state.free -= places
        return true
      }
      if mayEnter { continuation.resume() }
    }
  }

  /// Releases this many places.
  func leave(_ places: Int = 1) {
    let next = state.withLock { state in
      state.free += places
      var next: [CheckedContinuation<Void, Never>] = []
      while let first = state.waiting.first, first.places <= state.free {
        state.free -= first.places
        next.append(state.waiting.removeFirst().continuation)
      }
      return next
    }
    for continuation in next { continuation.resume() }
  }
}
