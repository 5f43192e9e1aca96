internal import StockroomCore

/// Work on a thread of its own.
///
/// While all tests run, a task may wait for more than a minute for a thread of the cooperative pool. So tests of calls
/// with a time limit neither make nor observe those calls in tasks.
package final class ThreadWork<Value: Sendable>: Sendable {
  private let thread = DedicatedThread()
  private let result = MutexProtected<Result<Value, any Error>?>(nil)

  package init(_ work: @escaping @Sendable () throws -> Value) throws {
    try thread.enqueue { [self] in
      let done = Result { try work() }
      result.withLock { $0 = done }
    }
  }

  deinit { thread.stopWithoutWaiting() }

  package var isOver: Bool { result.withLock { $0 != nil } }

  /// Blocks the caller's thread until the work is over.
  package func value() throws -> Value {
    thread.stop()
    guard let done = result.withLock({ $0 }) else { throw StorageError(.closed, "The work has not begun.") }
    return try done.get()
  }
}
