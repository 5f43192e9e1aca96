import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The state that all engines of a process on the same place share.
final class LMDBSharedEnvironment: Sendable {
  let environment: LMDBEnvironment
  let thread = DedicatedThread()
  let committer: GroupCommitter<LMDBRequest>

  init(_ environment: LMDBEnvironment) {
    self.environment = environment
    committer = GroupCommitter(on: thread) { try environment.commit($0) }
  }

  /// Lets `body` read a snapshot, on the caller's thread.
  func read<Value>(_ body: (LMDBSnapshot) throws -> Value) async throws -> Value {
    if case .value(let value) = try environment.read(body) { return value }
    return try await repeating { try environment.read(body) }
  }

  /// Lets `body` read a snapshot for any time, while yielding to others.
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

  /// Closes the environment, on a thread that may wait for a process that is opening or closing it.
  func close() {
    while environment.lockFile.isImmutable { usleep(100_000) }
    // LMDB makes the last process that closes remove resources that the next one is about to use (from 0.9.26
    // on). A process that holds the lock for longer than this does not open the database.
    let isLocked = (try? environment.file.lock(timeout: environment.lockTimeout)) != nil
    finishClosing(isLocked: isLocked)
  }

  /// Closes the environment, unless it would have to wait.
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

/// How long a reader retries if it finds another state than the one in the lock file.
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
