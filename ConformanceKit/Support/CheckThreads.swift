import Foundation

/// Threads that a check runs on, as many as Swift's cooperative pool has unless told otherwise.
///
/// An engine that holds the threads of its callers for ever, as in a deadlock, then holds these. The pool goes on, and
/// with it whoever has to say that the time of the check is over.
final class CheckThreads: TaskExecutor, @unchecked Sendable {
  // Safe to share: the state is touched only between lock() and unlock().
  private let condition = NSCondition()
  private var jobs: [UnownedJob] = []
  private var next = 0
  private var isStopped = false
  private var recordedWaits: [Duration] = []

  /// As many as the cooperative pool has.
  static let usualCount = max(2, ProcessInfo.processInfo.activeProcessorCount)

  /// - Parameter isWatched: Whether it is noted for how long a job makes its thread wait.
  init(count: Int = usualCount, isWatched: Bool = false) {
    for _ in 0..<count {
      Thread.detachNewThread { [self] in
        let watch = isWatched ? ThreadWatch() : nil
        while let job = take() {
          let start = watch?.reading()
          job.runSynchronously(on: asUnownedTaskExecutor())
          if let watch, let start { note(start.wait(until: watch.reading())) }
        }
      }
    }
  }

  /// For how long each job so far has made its thread wait: for a lock, a disk, or a time to pass. Time in which it
  /// computed, or in which the system let others compute, is not counted, where the system says so.
  var waits: [Duration] {
    condition.lock()
    defer { condition.unlock() }
    return recordedWaits
  }

  private func note(_ wait: Duration) {
    condition.lock()
    recordedWaits.append(wait)
    condition.unlock()
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

/// Tells for how long the thread that made it waits.
private final class ThreadWatch {
  /// A moment, with how long the thread has computed or been ready to until then.
  struct Reading {
    let moment: ContinuousClock.Instant
    let busy: Duration

    func wait(until later: Reading) -> Duration { later.moment - moment - (later.busy - busy) }
  }

  private let statistics = System.openThreadStatistics()

  deinit { if let statistics { System.closeFile(statistics) } }

  func reading() -> Reading {
    Reading(moment: .now, busy: System.threadProcessorTime + System.timeOnRunQueue(statistics))
  }
}
