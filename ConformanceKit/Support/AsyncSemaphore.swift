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
  static let shared = AsyncSemaphore(width: 4 * ProcessInfo.processInfo.activeProcessorCount + 2)

  private struct State {
    var free: Int
    /// In the order in which they came.
    var waiting: [(places: Int, continuation: CheckedContinuation<Void, Never>)] = []
  }

  /// How many places there are.
  let width: Int
  private let state: MutexProtected<State>

  init(width: Int) {
    self.width = width
    state = MutexProtected(State(free: width))
  }

  /// Does the work as soon as it is its turn.
  func pass<Result>(_ work: () async -> Result) async -> Result {
    await enter()
    let result = await work()
    leave()
    return result
  }

  /// Takes so many places when they are free and all who came before have had theirs.
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

  /// Gives back so many places.
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
