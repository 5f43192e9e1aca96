import StockroomCLMDB
import Dispatch
import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A read transaction of LMDB that has been reset and can be renewed, which saves searching the table of
/// readers for a slot each time.
struct LMDBReader: @unchecked Sendable {
  // Safe to share: with MDB_NOTLS a read transaction may be passed between threads, and it is either idle or
  // owned by the one call that took it.
  let transaction: OpaquePointer
}

/// The read transactions of one environment. Keeps idle ones for reuse, counts those in progress, and pauses new ones.
///
/// LMDB must not move its map while it is being read, which happens when a read begins. A writer that must move the map
/// pauses the readers: on its own thread, it waits for reads that are beginning, while new reads suspend. After its
/// beginning, a read uses a separate map, which is not moved (``LMDBMap``). So the writer does not wait for a long
/// read.
final class LMDBReaders: Sendable {
  enum Turn {
    case reader(LMDBReader?)
    /// Retry after ``LMDBReaders/untilResumed()``.
    case paused
  }

  private struct State {
    var idle: [LMDBReader] = []
    /// The number of transactions in progress.
    var transactions = 0
    /// The number of calls that are reading LMDB's own map.
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

    /// Returns whether the wait of the writer ends now, and records that.
    mutating func endsWait() -> Bool {
      defer { if isPausedFully { isAwaited = false } }
      return isAwaited && isPausedFully
    }
  }

  /// The reads that must end before the writer continues.
  enum Pause {
    /// Reads of LMDB's map.
    case map
    /// Whole transactions.
    case transactions
  }

  /// Limits the number of long reads, each of which holds a slot in LMDB's table of readers.
  let longReads = LongReadLimiter()
  private let state = MutexProtected(State())
  private let isPausedFully = DispatchSemaphore(value: 0)
  /// As many idle transactions are kept as reads run at the same time. Each holds a slot in the table of readers, which
  /// has 1023 for all processes together.
  private static let maximumIdle = max(4, min(16, ProcessInfo.processInfo.activeProcessorCount))

  /// Registers the caller as a reader, and returns an idle transaction to renew, if there is one. Each turn that is not
  /// paused must end with ``leave(_:isInMap:)``.
  func enter() -> Turn {
    state.withLock { state in
      if state.pause != nil { return .paused }
      state.transactions += 1
      state.inMap += 1
      return .reader(state.idle.popLast())
    }
  }

  /// Ends the caller's read of LMDB's map.
  func leaveMap() {
    let isLast = state.withLock { state in
      state.inMap -= 1
      return state.endsWait()
    }
    if isLast { isPausedFully.signal() }
  }

  /// Ends the caller's turn. The transaction, which has been reset, is kept if fewer than ``maximumIdle`` are idle.
  ///
  /// - Parameter isInMap: Whether the caller has not left the map yet.
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
      // The reader is still counted, so the environment stays open during this call.
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

  /// Calls `work` while the readers are paused. Call it only on the thread that writes.
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

  /// Ends the idle transactions. Call it only when none is in progress: before the environment is closed.
  func drain() {
    let idle = state.withLock { state in
      defer { state.idle = [] }
      return state.idle
    }
    for reader in idle { mdb_txn_abort(reader.transaction) }
  }
}
