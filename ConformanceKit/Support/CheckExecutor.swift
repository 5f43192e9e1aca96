import Foundation

/// Threads that a check runs on, as many as Swift's cooperative pool has by default.
///
/// An engine that blocks its callers' threads forever, as in a deadlock, then blocks these. The pool keeps
/// running, and with it the code that reports the timeout of the check.
final class CheckExecutor: TaskExecutor, @unchecked Sendable {
  // Safe to share: the state is only accessed between lock() and unlock().
  private let condition = NSCondition()
  private var jobs: [UnownedJob] = []
  private var next = 0
  /// The number of idle threads.
  private var idle = 0
  private var isStopped = false
  /// The number of threads of the cooperative pool.
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

  /// A single thread that is held before one of its jobs.
  init(holding point: HoldPoint) {
    Thread.detachNewThread { [self] in
      while let job = take() {
        point.pass()
        job.runSynchronously(on: asUnownedTaskExecutor())
      }
    }
  }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    condition.lock()
    let isTooLate = isStopped
    if !isTooLate { jobs.append(job) }
    // Once the lock is released, a thread may run the job, which may release the last reference to this executor: nothing
    // else holds it during this call.
    if !isTooLate, idle > 0 { condition.signal() }
    condition.unlock()
    // An actor that the check has used may still have jobs of others.
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

/// Makes a call that may wait, in a task with a thread of its own.
///
/// An engine may block its caller's thread meanwhile; only the checks of blocked threads report that. It then blocks
/// neither the threads on which the check continues nor one of the cooperative pool.
///
/// - Parameter begun: Incremented right before the call.
func onDedicatedThread<Value: Sendable>(
  counting begun: AtomicCounter? = nil, _ call: @escaping @Sendable () async throws -> Value
) -> Task<Value, any Error> {
  let thread = CheckExecutor(count: 1)
  return Task(executorPreference: thread) { @concurrent in
    defer { thread.stop() }
    begun?.increment()
    return try await call()
  }
}

/// Waits until this many calls on dedicated threads have begun, and a little longer, so that they start to wait.
func letWait(_ count: Int, of begun: AtomicCounter) async throws {
  while begun.value < count { try await yieldToAllThreads() }
  for _ in 0..<3 { try await yieldToAllThreads() }
}

/// Measures how long a thread waits during its jobs: for a lock, a disk, or a timer. Time in which it computes, or in
/// which the system runs other threads instead, is not counted, if the system reports it.
final class ThreadWaitMonitor: @unchecked Sendable {
  // Safe to share: only the watched thread accesses the state.
  private var statistics: Int32?
  private var waitedBefore = Duration.zero
  private var start: (moment: ContinuousClock.Instant, busy: Duration)?

  fileprivate func begin() { statistics = System.openThreadStatistics() }

  fileprivate func end() { if let statistics { System.closeFile(statistics) } }

  fileprivate func isBusy(_ isBusy: Bool) {
    waitedBefore = waited
    start = nil
    guard isBusy else { return }
    // Reads these values in the opposite order at the end, so that the computing time of others in between is not
    // counted as a wait.
    let busy = busy
    start = (.now, busy)
  }

  /// The total waiting time of the thread so far. Only on that thread.
  var waited: Duration {
    guard let start else { return waitedBefore }
    let time = start.moment.duration(to: .now)
    return waitedBefore + max(.zero, time - (busy - start.busy))
  }

  /// A baseline without an engine: how long the thread is blocked, on this machine and beside the other work of the
  /// process, while it computes for this long (at most 50 ms), starts a thread, and waits for it a few times, as an
  /// engine waits for locks. Only on that thread, during a job.
  func waitWithoutEngine(computing time: Duration = .zero) -> Duration {
    let before = waited
    let end = System.threadProcessorTime + min(time, .milliseconds(50))
    while System.threadProcessorTime < end {}
    let turns = (0..<3).map { _ in (begun: Latch(), done: Latch()) }
    Thread.detachNewThread {
      for turn in turns where turn.begun.wait(for: .seconds(1)) {
        // On a busy machine, a thread that lets others run waits for longer than one that has just been started.
        sched_yield()
        turn.done.signal()
      }
    }
    for turn in turns {
      turn.begun.signal()
      _ = turn.done.wait(for: .seconds(1))
    }
    return max(.zero, waited - before)
  }

  private var busy: Duration { System.threadProcessorTime + System.timeOnRunQueue(statistics) }
}
