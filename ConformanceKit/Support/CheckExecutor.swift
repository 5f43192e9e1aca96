import Foundation

/// Threads that a check runs on, as many as Swift's cooperative pool has by default.
///
/// An engine that holds the threads of its callers for ever, as in a deadlock, then holds these. The pool goes on, and
/// with it the code that reports that the time of the check is over.
final class CheckExecutor: TaskExecutor, @unchecked Sendable {
  // Safe to share: the state is touched only between lock() and unlock().
  private let condition = NSCondition()
  private var jobs: [UnownedJob] = []
  private var next = 0
  private var isStopped = false
  /// As many as the cooperative pool has.
  static let usualCount = max(2, ProcessInfo.processInfo.activeProcessorCount)

  init(count: Int = usualCount) {
    for _ in 0..<count {
      Thread.detachNewThread { [self] in
        while let job = take() { job.runSynchronously(on: asUnownedTaskExecutor()) }
      }
    }
  }

  /// A single thread, of which it is known for how long it waits.
  init(watchedBy watch: ThreadWaitMonitor) {
    Thread.detachNewThread { [self] in
      watch.begin()
      while let job = take() {
        watch.isBusy(true)
        job.runSynchronously(on: asUnownedTaskExecutor())
        watch.isBusy(false)
      }
      watch.end()
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
      if next == jobs.count { (jobs, next) = ([], 0) }
    }
    return jobs[next]
  }
}

/// Tells for how long a thread waits in the middle of its jobs: for a lock, a disk, or a time to pass. Time in which it
/// computes, or in which the system lets others compute, is not counted, where the system says so.
final class ThreadWaitMonitor: @unchecked Sendable {
  // Safe to share: only the thread that is watched touches the state.
  private var statistics: Int32?
  private var waitedBefore = Duration.zero
  private var start: (moment: ContinuousClock.Instant, busy: Duration)?

  fileprivate func begin() { statistics = System.openThreadStatistics() }

  fileprivate func end() { if let statistics { System.closeFile(statistics) } }

  fileprivate func isBusy(_ isBusy: Bool) {
    waitedBefore = waited
    start = isBusy ? (.now, busy) : nil
  }

  /// For how long the thread has waited so far. Only on that thread.
  var waited: Duration {
    guard let start else { return waitedBefore }
    return waitedBefore + (start.moment.duration(to: .now) - (busy - start.busy))
  }

  private var busy: Duration { System.threadProcessorTime + System.timeOnRunQueue(statistics) }
}
