import StockroomCore

/// Counts the elements sent since the subscriber last read. After more than 300, no more are sent once it has read.
final class ChangeFaultBacklog: Sendable {
  private let state = MutexProtected((count: 0, isOver: false))

  /// Whether another element is sent.
  func admitsMore() -> Bool {
    state.withLock { state in
      state.count += 1
      return !state.isOver
    }
  }

  /// Records that the subscriber has read all elements.
  func isRead() {
    state.withLock { state in
      if state.count > 300 { state.isOver = true }
      state.count = 0
    }
  }
}
