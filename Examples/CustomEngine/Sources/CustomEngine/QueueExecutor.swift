import Dispatch

/// Runs the calls of an actor one after another, on threads that can block while they wait for a disk: those of Swift's
/// cooperative pool, on which actors run by default, must not block.
final class QueueExecutor: SerialExecutor {
  private let queue = DispatchQueue(label: "JSONStorageEngine")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { [self] in job.runSynchronously(on: asUnownedSerialExecutor()) }
  }
}
