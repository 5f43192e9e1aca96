import Observation
import StockroomCore

/// Counts the changes that observation reports for what a closure reads.
final class ChangeCounter: Sendable {
  private let changes = MutexProtected(0)
  private let read: @Sendable () -> Void

  init(_ read: @escaping @Sendable () -> Void) {
    self.read = read
    observe()
  }

  var count: Int { changes.withLock { $0 } }

  private func observe() {
    withObservationTracking(read) { [weak self] in
      self?.changes.withLock { $0 += 1 }
      self?.observe()
    }
  }
}
