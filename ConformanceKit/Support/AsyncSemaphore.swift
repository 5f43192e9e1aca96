#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Lets a few checks run at a time, however many are started.
///
/// A test framework may start hundreds of checks at once. All together they would take minutes each, and none could
/// tell an engine that hangs from one that has to share two processors with all the others.
final class AsyncSemaphore: Sendable {
  /// The one that all checks of the process go through. More than there are processors, as engines wait for disks.
  static let shared = AsyncSemaphore(width: 2 * ProcessInfo.processInfo.activeProcessorCount + 2)

  private struct State {
    var free: Int
    var waiting: [CheckedContinuation<Void, Never>] = []
  }

  private let state: MutexProtected<State>

  init(width: Int) { state = MutexProtected(State(free: width)) }

  /// Does the work as soon as it is its turn.
  func pass<Result>(_ work: () async -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      let mayPass = state.withLock { state in
        if state.free > 0 {
          state.free -= 1
          return true
        }
        state.waiting.append(continuation)
        return false
      }
      if mayPass { continuation.resume() }
    }
    let result = await work()
    let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
      if !state.waiting.isEmpty { return state.waiting.removeFirst() }
      state.free += 1
      return nil
    }
    next?.resume()
    return result
  }
}
