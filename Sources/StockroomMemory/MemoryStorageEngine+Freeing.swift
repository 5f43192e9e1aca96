import Dispatch
import StockroomCore

extension MemoryStorageEngine {
  /// Tables with more entries than this are freed on a queue of the system.
  private static let mostFreedAtOnce = 10_000

  /// Releases a table, which takes long if it is large and not shared.
  func free(_ table: inout MemoryTable?) {
    #if DEBUG
      // A snapshot that is released lets the writer change shared nodes in place. Reference counts see to that,
      // but the thread sanitizer does not see them; it sees a lock.
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
  /// A table that is released where ``drop()`` is called, whatever else refers to this object.
  private final class LastReference: Sendable {
    private let table: MutexProtected<MemoryTable?>

    init(_ table: MemoryTable?) { self.table = MutexProtected(table) }

    func drop() { _ = table.withLock { $0.take() } }
  }
#endif
