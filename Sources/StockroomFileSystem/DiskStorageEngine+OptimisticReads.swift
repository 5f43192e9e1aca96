import Dispatch
import StockroomCore
import Synchronization

// Reads without the lock, which take it only after repeated conflicts with writers.

/// One attempt at a read.
struct ReadAttempt: Sendable {
  /// Set when the task of a read has been cancelled.
  fileprivate final class Cancellation: Sendable {
    private let isCancelled = Atomic(false)

    func cancel() { isCancelled.store(true, ordering: .relaxed) }

    func check() throws {
      if isCancelled.load(ordering: .relaxed) { throw CancellationError() }
    }
  }

  /// Whether the read holds the lock, so that no engine writes in the meantime.
  let hasLock: Bool
  private let cancellation: Cancellation

  init(hasLock: Bool) { self.init(hasLock: hasLock, Cancellation()) }

  fileprivate init(hasLock: Bool, _ cancellation: Cancellation) {
    self.hasLock = hasLock
    self.cancellation = cancellation
  }

  /// Throws `CancellationError` once the task has been cancelled.
  func check() throws { try cancellation.check() }
}

extension DiskStorageEngine {
  /// More keys than this are read outside the caller's thread.
  private static let mostKeysInline = 8

  /// Runs the work on a dispatch queue or, if writers keep interfering, on the engine's thread with the lock. Such reads run one
  /// at a time, so that no write waits for more than one of them.
  func readingMany<Result: Sendable>(
    _ count: Int, _ view: DiskConnection.View = .batches, retries: Int = 3,
    _ work: @escaping @Sendable (DiskConnection, ReadAttempt) throws -> Result
  ) async throws -> Result {
    try Task.checkCancellation()
    if count <= Self.mostKeysInline { return try await reading { try work($0, ReadAttempt(hasLock: false)) } }

    try gate.enter()
    defer { gate.leave() }
    let connection = try connection
    let cancellation = ReadAttempt.Cancellation()
    return try await withTaskCancellationHandler {
      let result: Result? = try await ThreadResult.wait { finish in
        DispatchQueue.global().async {
          finish(
            Swift.Result {
              try connection.optimisticRead(view, retries) {
                try work(connection, ReadAttempt(hasLock: false, cancellation))
              }
            })
        }
      }
      if let result { return result }
      try await lockedReads.enter()
      defer { lockedReads.leave() }
      return try await thread.run {
        try cancellation.check()
        return try connection.withLock { try work(connection, ReadAttempt(hasLock: true, cancellation)) }
      }
    } onCancel: {
      cancellation.cancel()
    }
  }

  /// Runs the work on the caller's thread or, if writers keep interfering, on the engine's thread, which may wait for them.
  func reading<Result: Sendable>(
    _ work: @escaping @Sendable (DiskConnection) throws -> Result
  ) async throws -> Result {
    try gate.enter()
    defer { gate.leave() }
    let connection = try connection
    for _ in 0..<3 {
      do {
        return try connection.optimisticRead(quickly: { try work(connection) })
      } catch is DiskConnection.SeqlockConflict {
        continue
      }
    }
    return try await thread.run { try connection.withLock { try work(connection) } }
  }
}

extension DiskConnection {
  /// Runs the work without the lock. Nil if each attempt conflicted with a write.
  fileprivate func optimisticRead<Result>(
    _ view: View, _ retries: Int, _ work: () throws -> Result
  ) throws -> Result? {
    for _ in 0..<retries {
      do {
        return try optimisticRead(view) { _ in try work() }
      } catch is SeqlockConflict {
        continue
      }
    }
    return nil
  }

  /// Runs a listing, with which any write conflicts, and retries it, so that a single write does not restart the whole read.
  ///
  /// - Parameter work: Receives the version to which everything it reads belongs; nil if the caller holds the lock and the last
  ///   commit has not ended correctly, since the keys may then change without a new version.
  /// - Throws: ``SeqlockConflict`` if a write conflicted with each attempt. Never while the caller holds the lock.
  func listing<Result>(_ attempt: ReadAttempt, _ work: (_ version: UInt64?) throws -> Result) throws -> Result
  {
    if attempt.hasLock {
      let contents = try state.read()
      return try work(contents.isStable ? contents.version : nil)
    }
    for _ in 0..<3 {
      do {
        return try optimisticRead(.everything, work)
      } catch is SeqlockConflict {
        continue
      }
    }
    return try optimisticRead(.everything, work)
  }
}
