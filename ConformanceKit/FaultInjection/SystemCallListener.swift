import Foundation

#if os(Linux) && (arch(x86_64) || arch(arm64))
  /// Receives the system calls that a ``SystemCallFilter`` intercepts, and has them answered one after the other.
  ///
  /// It uses two threads because the answering thread may itself make intercepted calls: the C library opens a file of
  /// the kernel to free memory, and the thread sanitizer writes a report. Waiting for an answer to these calls, it
  /// would wait for itself. So the receiving thread lets them pass. It neither allocates memory nor takes a lock that a
  /// waiting thread could hold.
  final class SystemCallListener: @unchecked Sendable {
    // Safe to share: the state is only accessed between lock() and unlock(), except for the next record, which belongs
    // to the receiving thread.
    private let condition = NSCondition()
    private let records = UnsafeMutableRawPointer.allocate(
      byteCount: capacity * SystemCallFilter.recordSize, alignment: 8)
    private var received = 0
    private var taken = 0
    private var filter: SystemCallFilter?
    private var answeringThread: UInt32?
    private var isStopped = false

    /// More than the number of threads of a process, each of which waits for at most one answer.
    private static let capacity = 4_096

    /// Starts the answering thread, which has nothing to do before ``listen(to:)``.
    ///
    /// - Parameter answer: Called on that thread for each call of another thread.
    /// - Throws: ``Skip`` if the calls of a process cannot be received.
    init(
      answer: @escaping @Sendable (SystemCallFilter.Request, SystemCallFilter) -> SystemCallFilter.Answer
    ) throws {
      let system = try RawSystemCall.required()
      Thread.detachNewThread { [self] in
        condition.lock()
        answeringThread = system.threadIdentifier
        condition.broadcast()
        condition.unlock()
        while let (request, filter) = next() { filter.answer(request, answer(request, filter)) }
      }
      condition.lock()
      while answeringThread == nil { condition.wait() }
      condition.unlock()
    }

    deinit { records.deallocate() }

    /// Receives the calls until the process ends.
    func listen(to filter: SystemCallFilter) {
      condition.lock()
      self.filter = filter
      let answeringThread = answeringThread
      condition.unlock()
      Thread.detachNewThread { [self] in
        let reply = UnsafeMutableRawPointer.allocate(byteCount: SystemCallFilter.replySize, alignment: 8)
        var record = records
        while filter.receive(into: record) {
          if SystemCallFilter.thread(of: record) == answeringThread {
            filter.letPass(record, reply: reply)
          } else {
            record = enqueue()
          }
        }
        reply.deallocate()
        stop()
      }
    }

    /// Ends the answering thread.
    func stop() {
      condition.lock()
      isStopped = true
      condition.broadcast()
      condition.unlock()
    }

    /// Queues the record that was received last. Returns the next one to fill.
    private func enqueue() -> UnsafeMutableRawPointer {
      condition.lock()
      defer { condition.unlock() }
      received += 1
      condition.broadcast()
      while received - taken == Self.capacity { condition.wait() }
      return record(received)
    }

    /// The next call to answer. Nil if there will be none.
    private func next() -> (SystemCallFilter.Request, SystemCallFilter)? {
      condition.lock()
      defer { condition.unlock() }
      while true {
        if isStopped { return nil }
        if let filter, received > taken {
          let request = SystemCallFilter.Request(record(taken))
          taken += 1
          condition.broadcast()
          return (request, filter)
        }
        condition.wait()
      }
    }

    private func record(_ number: Int) -> UnsafeMutableRawPointer {
      records + number % Self.capacity * SystemCallFilter.recordSize
    }
  }
#endif
