import Dispatch
import StockroomCore

extension MemoryStorageEngine {
  /// Tables with more entries than this are freed on a dispatch queue.
  private static let mostFreedAtOnce = 10_000

  /// Releases a table. Freeing it takes long if it is large and not shared.
  func free(_ table: inout MemoryTable?) {
    #if DEBUG
      // After a snapshot is released, the writer changes formerly shared nodes in place. Reference counts
      // order these accesses, but the thread sanitizer recognizes only locks.
      releaseLocked(&table)
    #else
      guard let count = table?.entries.count, count > Self.mostFreedAtOnce else {
        table = nil
        return
      }
      let last = LastReference(table.take())
      DispatchQueue.global().async { last.drop() }
    #endif
  }
}

#if !DEBUG
  /// Holds a table that is released when ``drop()`` is called, even if other references to this object
  /// remain.
  private final class LastReference: Sendable {
    private let table: MutexProtected<MemoryTable?>

    init(_ table: MemoryTable?) { self.table = MutexProtected(table) }

    func drop() { _ = table.withLock { $0.take() } }
  }
#endif
