import Foundation

/// The threads that a check runs on, as many as Swift's cooperative pool has.
///
/// An engine that holds the threads of its callers for ever, as in a deadlock, then holds these. The pool goes on, and
/// with it whoever has to say that the time of the check is over.
final class CheckThreads: TaskExecutor, @unchecked Sendable {
  // Safe to share: the state is touched only between lock() and unlock().
  private let condition = NSCondition()
  private var jobs: [UnownedJob] = []
  private var next = 0
  private var isStopped = false

  init() {
    for _ in 0..<max(2, ProcessInfo.processInfo.activeProcessorCount) {
      Thread.detachNewThread { [self] in
        while let job = take() { job.runSynchronously(on: asUnownedTaskExecutor()) }
      }
    }
  }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    condition.lock()
    let isTooLate = isStopped
    if !isTooLate {
      jobs.append(job)
      condition.signal()
    }
    condition.unlock()
    // An actor that the check has used may still have something to do for others.
    if isTooLate { globalConcurrentExecutor.enqueue(job) }
  }

  /// Ends the threads once nothing waits for them any more. Does not wait for that.
  func stop() {
    condition.lock()
    isStopped = true
    condition.broadcast()
    condition.unlock()
  }

  /// The next job, as soon as there is one; nil if there will be none.
  private func take() -> UnownedJob? {
    condition.lock()
    defer { condition.unlock() }
    while next == jobs.count {
      if isStopped { return nil }
      condition.wait()
    }
    defer {
      next += 1
      if next == jobs.count {
        jobs.removeAll(keepingCapacity: true)
        next = 0
      }
    }
    return jobs[next]
  }
}
