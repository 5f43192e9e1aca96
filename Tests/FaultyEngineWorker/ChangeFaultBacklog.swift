import StockroomCore

/// How much a subscriber has been sent and has not read, for an engine with a fault that sends it nothing more once that was too much.
final class ChangeFaultBacklog: Sendable {
  private let state = MutexProtected((count: 0, isOver: false))

  /// Whether something else is sent.
  func admitsMore() -> Bool {
    state.withLock { state in
      state.count += 1
      return !state.isOver
    }
  }

  /// The subscriber has read what there was.
  func isRead() {
    state.withLock { state in
      if state.count > 300 { state.isOver = true }
      state.count = 0
    }
  }
}
