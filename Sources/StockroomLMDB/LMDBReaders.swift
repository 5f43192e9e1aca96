import StockroomCLMDB
import Dispatch
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A read transaction of LMDB that is reset and waits to be renewed, which saves looking for a place in the
/// table of readers each time.
struct LMDBReader: @unchecked Sendable {
  // Safe to share: with MDB_NOTLS a read transaction may go from thread to thread, and it is either among the
  // idle ones or with the one call that took it out.
  let transaction: OpaquePointer
}

/// The read transactions of one environment: those that wait to be used, those that are under way, and whether new ones
/// have to keep away.
///
/// LMDB must not move its map while it is being read, which reads do when they begin. The writer that has to move
/// it pauses them: it waits, on its own thread, for those that are beginning, and those that come suspend. What they read
/// after that is in a map of our own, which stays (``LMDBMap``). So the writer does not wait for a long read, however often that one
/// gives way.
final class LMDBReaders: Sendable {
  enum Turn {
    case reader(LMDBReader?)
    /// Try again after ``LMDBReaders/untilResumed()``.
    case paused
  }

  private struct State {
    var idle: [LMDBReader] = []
    /// How many transactions are under way.
    var transactions = 0
    /// How many calls are looking at LMDB's own map.
    var inMap = 0
    var pause: Pause?
    var waiting: [CheckedContinuation<Void, Never>] = []

    /// Whether the writer waits for readers to leave.
    var isAwaited = false

    var isPausedFully: Bool { inMap == 0 && (pause == .map || transactions == 0) }

    mutating func leave(isInMap: Bool) -> Bool {
      transactions -= 1
      if isInMap { inMap -= 1 }
      return endsWait()
    }

    /// Whether the writer waits no longer from now on.
    mutating func endsWait() -> Bool {
      defer { if isPausedFully { isAwaited = false } }
      return isAwaited && isPausedFully
    }
  }

  /// What has to be over before the writer goes on.
  enum Pause {
    /// Looking at LMDB's map.
    case map
    /// Whole transactions.
    case transactions
  }

  /// Those that yield to one another, each with a place in LMDB's table of readers.
  let longReads = LongReadLimiter()
  private let state = MutexProtected(State())
  private let isPausedFully = DispatchSemaphore(value: 0)
  /// As many as run at the same time. A place in the table of readers, of which all processes together have 1023, is not
  /// kept for more.
  private static let maximumIdle = max(4, min(16, ProcessInfo.processInfo.activeProcessorCount))

  /// Counts the caller in, with a transaction to renew if one is idle. Every turn that is not paused ends with
  /// ``leave(_:isInMap:)``.
  func enter() -> Turn {
    state.withLock { state in
      if state.pause != nil { return .paused }
      state.transactions += 1
      state.inMap += 1
      return .reader(state.idle.popLast())
    }
  }

  /// The caller, who entered, looks at LMDB's map no more.
  func leaveMap() {
    let isLast = state.withLock { state in
      state.inMap -= 1
      return state.endsWait()
    }
    if isLast { isPausedFully.signal() }
  }

  /// Counts the caller out, whose transaction has been reset, which is kept if few are.
  ///
  /// - Parameter isInMap: Whether it has not left the map yet.
  func leave(_ reader: LMDBReader?, isInMap: Bool) {
    var isCounted = true
    var isLast = state.withLock { state in
      if let reader {
        isCounted = state.idle.count < Self.maximumIdle
        guard isCounted else { return false }
        state.idle.append(reader)
      }
      return state.leave(isInMap: isInMap)
    }
    if let reader, !isCounted {
      // While it is still counted, since the environment must be open.
      mdb_txn_abort(reader.transaction)
      isLast = state.withLock { $0.leave(isInMap: isInMap) }
    }
    if isLast { isPausedFully.signal() }
  }

  /// Suspends while the readers are paused.
  func untilResumed() async {
    await withCheckedContinuation { continuation in
      let isPaused = state.withLock { state in
        if state.pause != nil { state.waiting.append(continuation) }
        return state.pause != nil
      }
      if !isPaused { continuation.resume() }
    }
  }

  /// Calls `work` while the readers are paused. Only on the thread that writes.
  func whilePaused(for pause: Pause, _ work: () throws -> Void) rethrows {
    let mustWait = state.withLock { state in
      state.pause = pause
      state.isAwaited = !state.isPausedFully
      return state.isAwaited
    }
    if mustWait { isPausedFully.wait() }
    defer {
      let waiting = state.withLock { state in
        state.pause = nil
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
