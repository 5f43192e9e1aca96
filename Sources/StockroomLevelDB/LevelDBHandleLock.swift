import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Gives readers access to the open database, and lets the writer replace it while no reader uses it.
///
/// LevelDB cannot continue after some failures: the database must be closed and reopened. A reader that
/// arrives in the meantime is suspended, without blocking its thread (rule C5).
final class LevelDBHandleLock: @unchecked Sendable {
  /// The result of an attempt to read.
  private enum Entrance {
    case open(LevelDBHandle)
    /// Opening has failed.
    case failed(any Error, failures: Int)
    case exchanging(failures: Int)
  }

  // Safe to share: everything below is accessed only with `mutex` locked.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let isIdle = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var handle: Result<LevelDBHandle, any Error>
  private var failureCount = 0
  private var readers = 0
  private var isExchanging = false
  private var waiting: [CheckedContinuation<Void, Never>] = []

  init(_ handle: LevelDBHandle) {
    self.handle = .success(handle)
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(isIdle, nil)
  }

  deinit {
    pthread_cond_destroy(isIdle)
    pthread_mutex_destroy(mutex)
    isIdle.deallocate()
    mutex.deallocate()
  }

  /// Calls `body` with the open database.
  ///
  /// - Parameter reopen: Replaces the database, which is not open because opening it has failed. Receives the value of
  ///   ``failures`` for this failure. Throws if opening fails again.
  /// - Throws: what `body` and `reopen` throw; the error of opening the database if that was tried while the
  ///   caller waited; `CancellationError` if the task is cancelled and the database is not open.
  func withHandle<Value>(
    reopening reopen: (_ failures: Int) async throws -> Void,
    _ body: (LevelDBHandle) async throws -> Value
  ) async throws -> Value {
    // The number of failures when the caller began to wait for an exchange.
    var awaited: Int?
    while true {
      switch enter() {
      case .open(let handle):
        defer { leave() }
        return try await body(handle)
      case .failed(let failure, let failures):
        if let awaited, awaited != failures { throw failure }
        try Task.checkCancellation()
        try await reopen(failures)
      case .exchanging(let failures):
        awaited = failures
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
          if !enqueue(continuation) { continuation.resume() }
        }
      }
    }
  }

  /// Calls `body` with the open database. Does nothing if the database is being exchanged or is not open.
  func ifOpen(_ body: (LevelDBHandle) -> Void) {
    guard case .open(let handle) = enter() else { return }
    defer { leave() }
    body(handle)
  }

  /// The open database, for the one thread that may exchange it.
  var current: Result<LevelDBHandle, any Error> { locked { handle } }

  /// The number of failed attempts to open the database. Shows a waiting caller whether one has failed in the
  /// meantime.
  var failures: Int { locked { failureCount } }

  /// Records that another attempt to open the database has failed. Does nothing if it is open. For the one thread that
  /// may exchange the database.
  func noteFailure(_ failure: any Error) {
    locked {
      guard case .failure = handle else { return }
      handle = .failure(failure)
      failureCount += 1
    }
  }

  /// Closes the database once no reader has it, and replaces it with what `open` returns or throws.
  ///
  /// Blocks the calling thread.
  func exchange(_ open: () throws -> LevelDBHandle) throws {
    locked {
      isExchanging = true
      while readers > 0 { pthread_cond_wait(isIdle, mutex) }
    }
    if case .success(let old) = current { old.close() }
    let new = Result { try open() }
    let waiting = locked {
      handle = new
      if case .failure = new { failureCount += 1 }
      isExchanging = false
      defer { self.waiting = [] }
      return self.waiting
    }
    for reader in waiting { reader.resume() }
    _ = try new.get()
  }

  /// Registers a reader if the database is open.
  private func enter() -> Entrance {
    locked { () -> Entrance in
      if isExchanging { return .exchanging(failures: failureCount) }
      switch handle {
      case .success(let handle):
        readers += 1
        return .open(handle)
      case .failure(let failure):
        return .failed(failure, failures: failureCount)
      }
    }
  }

  private func leave() {
    locked {
      readers -= 1
      if readers == 0, isExchanging { pthread_cond_signal(isIdle) }
    }
  }

  /// Returns false if the exchange has already ended.
  private func enqueue(_ reader: CheckedContinuation<Void, Never>) -> Bool {
    locked {
      if isExchanging { waiting.append(reader) }
      return isExchanging
    }
  }

  private func locked<Value>(_ body: () throws -> Value) rethrows -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return try body()
  }
}
