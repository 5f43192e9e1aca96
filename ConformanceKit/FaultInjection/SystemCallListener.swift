import Foundation

#if os(Linux) && (arch(x86_64) || arch(arm64))
  /// Receives the system calls that a ``SystemCallFilter`` intercepts, and has them answered one after the
  /// other.
  ///
  /// On two threads, as the one that answers makes calls itself that are not in its code: the C library opens a file of
  /// the kernel to free memory, and the thread sanitizer writes a report. It would wait for its own answer. The other
  /// thread lets these calls pass; it neither allocates memory nor takes a lock that a thread could hold which waits.
  final class SystemCallListener: @unchecked Sendable {
    // Safe to share: the state is touched only between lock() and unlock(), but for the record that is received next,
    // which belongs to the receiving thread.
    private let condition = NSCondition()
    private let records = UnsafeMutableRawPointer.allocate(
      byteCount: capacity * SystemCallFilter.recordSize, alignment: 8)
    private var received = 0
    private var taken = 0
    private var filter: SystemCallFilter?
    private var answeringThread: UInt32?
    private var isStopped = false

    /// More than a process has threads, of which each waits for one answer at most.
    private static let capacity = 4_096

    /// Starts the thread that answers, which has nothing to do before ``listen(to:)``.
    ///
    /// - Parameter answer: Called on that thread for each call that another thread makes.
    /// - Throws: ``Skip`` where the calls of a process cannot be received.
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

    /// Receives the calls, for as long as the process lives.
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

    /// Ends the thread that answers.
    func stop() {
      condition.lock()
      isStopped = true
      condition.broadcast()
      condition.unlock()
    }

    /// Hands over the record that was received last. Returns the next one.
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
