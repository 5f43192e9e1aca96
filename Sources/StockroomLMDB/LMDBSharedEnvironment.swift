import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The state that all engines of a process on the same database share.
final class LMDBSharedEnvironment: Sendable {
  let environment: LMDBEnvironment
  let thread = DedicatedThread()
  let committer: GroupCommitter<LMDBRequest>

  init(_ environment: LMDBEnvironment) {
    self.environment = environment
    committer = GroupCommitter(on: thread) { try environment.commit($0) }
  }

  /// Calls `body` with a snapshot, on the caller's thread.
  func read<Value>(_ body: (LMDBSnapshot) throws -> Value) async throws -> Value {
    if case .value(let value) = try environment.read(body) { return value }
    return try await repeating { try environment.read(body) }
  }

  /// Calls `body` with a snapshot that it may read for any length of time, with suspensions.
  func readLong<Value>(_ body: (LMDBLongRead) async throws -> Value) async throws -> Value {
    try await environment.readers.longReads.enter()
    defer { environment.readers.longReads.leave() }
    let read = try await repeating { try environment.begin() }
    defer { environment.end(read) }
    do {
      let value = try await body(read)
      // The data that were read may no longer be in place.
      try environment.checkResult(of: read)
      return value
    } catch {
      throw StorageError.fromTransaction(
        error, "Reading the LMDB database in \(environment.directory) failed")
    }
  }

  private func repeating<Value>(_ attempt: () throws -> LMDBEnvironment.Attempt<Value>) async throws -> Value
  {
    var retryLimit = StaleRetryLimit()
    while true {
      switch try attempt() {
      case .value(let value): return value
      case .paused: await environment.readers.untilResumed()
      case .needsRepair: try await thread.run { [environment] in try environment.repair() }
      case .isStale:
        try retryLimit.check(environment)
        await Task.yield()
      }
    }
  }

  /// Closes the environment. Call it on a thread that may block: it waits for a process that is opening or closing the
  /// database.
  func close() {
    while environment.lockFile.isImmutable { usleep(100_000) }
    // From 0.9.26 on, the last process that closes the database removes resources that the next one is about to use, so
    // this holds the lock. A process that holds the lock for longer than the timeout is not opening the database.
    let isLocked = (try? environment.file.lock(timeout: environment.lockTimeout)) != nil
    finishClosing(isLocked: isLocked)
  }

  /// Closes the environment, unless that requires waiting. Returns whether it has been closed.
  func tryToClose() -> Bool {
    guard !environment.lockFile.isImmutable, environment.file.tryLock() else { return false }
    finishClosing(isLocked: true)
    return true
  }

  private func finishClosing(isLocked: Bool) {
    environment.close(isLocked: isLocked)
    LMDBRegistry.forget(self)
  }
}

/// Limits how long a reader retries if the data file has another state than the lock file records.
struct StaleRetryLimit {
  private var end: ContinuousClock.Instant?

  /// - Throws: `StorageError` with code `io` a second after the first call.
  mutating func check(_ environment: LMDBEnvironment) throws {
    let limit = end ?? .now + .seconds(1)
    end = limit
    guard ContinuousClock.now < limit else {
      throw StorageError(
        .io,
        "\(environment.file.path) has been written without its lock file, or written over, since it was opened."
      )
    }
  }
}
