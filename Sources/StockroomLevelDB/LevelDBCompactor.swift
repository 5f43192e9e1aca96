import StockroomCore
import Synchronization

/// The thread on which tables are merged after all entries have been removed. Only ``stop()`` waits for it.
///
/// LevelDB cannot be closed while a range is being compacted, and cannot cancel that, so a range is kept
/// small.
final class LevelDBCompactor: Sendable {
  private let thread = DedicatedThread()
  private let isStopping = Atomic(false)

  /// Does the work after all earlier work, unless the thread is to stop. An error is ignored: space is then
  /// freed later, when LevelDB compacts by itself.
  func enqueue(_ work: @escaping @Sendable () throws -> Void) {
    try? thread.enqueue {
      if !self.isStopping.load(ordering: .relaxed) { try? work() }
    }
  }

  /// Waits for the range that is being compacted.
  func stop() {
    isStopping.store(true, ordering: .relaxed)
    thread.stop()
  }
}
