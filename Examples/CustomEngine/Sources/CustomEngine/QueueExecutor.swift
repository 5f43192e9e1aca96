import Dispatch

/// Makes the calls of an actor one after the other, on threads that may wait for a disk: those of Swift's cooperative pool,
/// on which actors are by default, may not.
final class QueueExecutor: SerialExecutor {
  private let queue = DispatchQueue(label: "JSONStorageEngine")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { [self] in job.runSynchronously(on: asUnownedSerialExecutor()) }
  }
}
