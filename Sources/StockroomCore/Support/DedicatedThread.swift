import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A thread of an engine, which runs jobs in order and may wait for a disk (rule C5).
///
/// The thread starts with the first job, so that an engine that only reads has none. ``stop()`` or
/// ``stopWithoutWaiting()`` must be called before the last reference is released.
package final class DedicatedThread: @unchecked Sendable {
  // Safe to share: `jobs`, `isStopping` and `thread` are accessed only with `mutex` locked, except that
  // `thread` is joined or detached once, by the one caller that took it.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var jobs: [() -> Void] = []
  private var isStopping = false
  private var thread: pthread_t?
  /// Whether there are jobs, or no more jobs are accepted. Read without the lock.
  private let isWanted = Atomic(false)

  package init() {
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(condition, nil)
  }

  deinit {
    pthread_cond_destroy(condition)
    pthread_mutex_destroy(mutex)
    condition.deallocate()
    mutex.deallocate()
  }

  /// Enqueues the job, which runs after all earlier ones.
  ///
  /// - Throws: ``StorageError`` with code `closed` after ``stop()``, `io` if the system cannot create a
  ///   thread.
  package func enqueue(_ job: @escaping @Sendable () -> Void) throws {
    pthread_mutex_lock(mutex)
    do {
      defer { pthread_mutex_unlock(mutex) }
      guard !isStopping else { throw StorageError(.closed, "The engine's thread has been stopped.") }
      if thread == nil { thread = try start() }
      jobs.append(job)
      isWanted.store(true, ordering: .relaxed)
    }
    // Signals after unlocking, so that the thread does not wake up only to wait for the lock.
    pthread_cond_signal(condition)
  }

  /// Runs the waiting jobs, then ends the thread. Returns when the thread has ended.
  package func stop() {
    guard let thread = takeThread() else { return }
    if pthread_equal(thread, pthread_self()) != 0 {
      // A job released the last reference to its engine. The thread ends by itself after this job.
      pthread_detach(thread)
    } else {
      pthread_join(thread, nil)
    }
  }

  /// Like ``stop()``, but returns immediately. The thread runs the waiting jobs, then ends by itself.
  package func stopWithoutWaiting() {
    if let thread = takeThread() { pthread_detach(thread) }
  }

  /// Stops accepting jobs. Returns the thread if it has been started, and no other caller has taken it.
  private func takeThread() -> pthread_t? {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    isStopping = true
    isWanted.store(true, ordering: .relaxed)
    pthread_cond_signal(condition)
    return thread.take()
  }

  private func start() throws -> pthread_t {
    // `pthread_t` is a number in Glibc, and a pointer elsewhere.
    #if canImport(Darwin) || canImport(Musl)
      var thread: pthread_t?
    #else
      var thread = pthread_t()
    #endif
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setstacksize(&attributes, Self.stackSize)
    let me = Unmanaged.passRetained(self)
    let result = pthread_create(&thread, &attributes, Self.main, me.toOpaque())
    guard result == 0, let started = thread as pthread_t? else {
      me.release()
      throw StorageError.posix(result, "Starting a thread failed")
    }
    return started
  }

  /// The default size is 128 KiB with musl and 512 KiB on Apple's systems, which deeply nested calls of a database can exceed.
  private static let stackSize = 1 << 20

  #if canImport(Darwin)
    private typealias Main = @convention(c) (UnsafeMutableRawPointer) -> UnsafeMutableRawPointer?
  #else
    private typealias Main = @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?
  #endif

  /// The function of the thread: repeatedly takes all waiting jobs and runs them, until it must stop and none are left.
  private static let main: Main = { argument in
    guard let argument = argument as UnsafeMutableRawPointer? else { return nil }
    let me = Unmanaged<DedicatedThread>.fromOpaque(argument).takeRetainedValue()
    while let jobs = me.next() {
      for job in jobs { job() }
    }
    return nil
  }

  private func next() -> [() -> Void]? {
    // Spins first, since a task that writes repeatedly enqueues its next job as soon as the last one is done.
    Self.spin { isWanted.load(ordering: .relaxed) }
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while jobs.isEmpty {
      if isStopping { return nil }
      pthread_cond_wait(condition, mutex)
    }
    isWanted.store(false, ordering: .relaxed)
    defer { jobs = [] }
    return jobs
  }

  /// Yields to other threads until `isDone` returns true or 100 µs have passed. That is about as long as it takes to wake a
  /// thread, which this avoids, and short compared with waiting for a disk.
  package static func spin(until isDone: () -> Bool) {
    let end = ContinuousClock.now + .microseconds(100)
    while !isDone(), ContinuousClock.now < end { sched_yield() }
  }
}

extension DedicatedThread {
  /// Runs the work on the thread, and suspends the caller, without blocking its thread, until it is done.
  package func run<Result: Sendable>(_ work: @escaping @Sendable () throws -> Result) async throws -> Result {
    // The thread releases the work before the caller continues, which may then release the last reference to objects that the
    // work holds (rule O4).
    let work = MutexProtected<(@Sendable () throws -> Result)?>(work)
    return try await ThreadResult.wait { finish in
      do {
        try enqueue {
          let result = work.withLock { $0.take() }.map { work in Swift.Result { try work() } }
          if let result { finish(result) }
        }
      } catch {
        finish(.failure(error))
      }
    }
  }
}
