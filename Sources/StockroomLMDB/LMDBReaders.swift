import CLMDB
import Dispatch
import StockroomCore

/// A read transaction of LMDB that is reset and waits to be renewed, which saves looking for a place in the
/// table of readers each time.
struct LMDBReader: @unchecked Sendable {
  // Safe to share: with MDB_NOTLS a read transaction may go from thread to thread, and it is either among the
  // idle ones or with the one call that took it out.
  let transaction: OpaquePointer
}

/// The read transactions of one environment: those that wait to be used, how many are in use, and whether they
/// have to keep away.
///
/// LMDB must not move its map while a transaction of the process is open. So the writer that has to move it
/// pauses the readers: it waits, on its own thread, for those that are there, and those that come suspend.
final class LMDBReaders: Sendable {
  enum Turn {
    case reader(LMDBReader?)
    case paused
  }

  private struct State {
    var idle: [LMDBReader] = []
    var active = 0
    var isPaused = false
    var waiting: [CheckedContinuation<Void, Never>] = []
  }

  private let state = Guarded(State())
  private let allHaveLeft = DispatchSemaphore(value: 0)

  /// Counts the caller in, with a transaction to renew if one is idle. Every turn that is not paused ends with
  /// ``leave(_:)``.
  func enter() -> Turn {
    state.withLock { state in
      if state.isPaused { return .paused }
      state.active += 1
      return .reader(state.idle.popLast())
    }
  }

  /// Counts the caller out and keeps its transaction, which has been reset.
  func leave(_ reader: LMDBReader?) {
    let isAwaited = state.withLock { state in
      state.active -= 1
      if let reader { state.idle.append(reader) }
      return state.isPaused && state.active == 0
    }
    if isAwaited { allHaveLeft.signal() }
  }

  /// Suspends while the readers are paused.
  func untilResumed() async {
    await withCheckedContinuation { continuation in
      let isPaused = state.withLock { state in
        if state.isPaused { state.waiting.append(continuation) }
        return state.isPaused
      }
      if !isPaused { continuation.resume() }
    }
  }

  /// Calls `work` while no read transaction of this process is under way. Only on the thread that writes.
  func whilePaused(_ work: () throws -> Void) rethrows {
    let mustWait = state.withLock { state in
      state.isPaused = true
      return state.active > 0
    }
    if mustWait { allHaveLeft.wait() }
    defer {
      let waiting = state.withLock { state in
        state.isPaused = false
        defer { state.waiting = [] }
        return state.waiting
      }
      for continuation in waiting { continuation.resume() }
    }
    try work()
  }

  /// Ends the idle transactions. Only when none is under way: before the environment is closed.
  func drain() {
    let idle = state.withLock { state in
      defer { state.idle = [] }
      return state.idle
    }
    for reader in idle { mdb_txn_abort(reader.transaction) }
  }
}
