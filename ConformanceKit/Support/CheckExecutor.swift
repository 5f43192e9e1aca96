import Foundation

/// Threads that a check runs on, as many as Swift's cooperative pool has by default.
///
/// An engine that blocks its callers' threads forever, as in a deadlock, then blocks these. The pool keeps
/// running, and with it the code that reports the timeout of the check.
final class CheckExecutor: TaskExecutor, @unchecked Sendable {
  // Safe to share: the state is touched only between lock() and unlock().
  private let condition = NSCondition()
  private var jobs: [UnownedJob] = []
  private var next = 0
  /// How many threads have nothing to do.
  private var idle = 0
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

  /// A single thread whose waiting time is measured.
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
    if !isTooLate { jobs.append(job) }
    let wakes = !isTooLate && idle > 0
    condition.unlock()
    // A thread that is woken earlier only waits for the lock.
    if wakes { condition.signal() }
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
      idle += 1
      condition.wait()
      idle -= 1
    }
    let job = jobs[next]
    next += 1
    if next == jobs.count {
      jobs.removeAll(keepingCapacity: true)
      next = 0
    }
    return job
  }
}

/// Measures how long a thread waits in the middle of its jobs: for a lock, a disk, or a time to pass. Time in
/// which it computes, or in which the system runs other threads instead, is not counted, if the system
/// reports it.
final class ThreadWaitMonitor: @unchecked Sendable {
  // Safe to share: only the thread that is watched touches the state.
  private var statistics: Int32?
  private var waitedBefore = Duration.zero
  private var start: (moment: ContinuousClock.Instant, busy: Duration)?

  fileprivate func begin() { statistics = System.openThreadStatistics() }

  fileprivate func end() { if let statistics { System.closeFile(statistics) } }

  fileprivate func isBusy(_ isBusy: Bool) {
    waitedBefore = waited
    start = nil
    guard isBusy else { return }
    // In this order, and in the other one at the end: what others compute in between is then not taken for a wait.
    let busy = busy
    start = (.now, busy)
  }

  /// For how long the thread has waited so far. Only on that thread.
  var waited: Duration {
    guard let start else { return waitedBefore }
    let time = start.moment.duration(to: .now)
    return waitedBefore + max(.zero, time - (busy - start.busy))
  }

  /// For how long the thread stands still, on this machine and beside what else the process does, while it starts a thread, waits
  /// until that runs, and computes for so long. Only on that thread, in the middle of a job.
  func waitWithoutEngine(computing time: Duration = .zero) -> Duration {
    let before = waited
    let end = System.threadProcessorTime + min(time, .milliseconds(50))
    while System.threadProcessorTime < end {}
    let isRunning = Latch()
    Thread.detachNewThread { isRunning.signal() }
    _ = isRunning.wait(for: .seconds(1))
    return max(.zero, waited - before)
  }

  private var busy: Duration { System.threadProcessorTime + System.timeOnRunQueue(statistics) }
}
