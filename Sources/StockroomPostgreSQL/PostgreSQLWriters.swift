import StockroomCore

/// A write, and the call that waits for it.
struct PostgreSQLWrite: Sendable {
  let request: WriteRequest
  let call: PostgreSQLCall<Void>
  /// The number of bytes of its values, as far as it is known.
  let size: Int

  init(_ request: WriteRequest, _ call: PostgreSQLCall<Void>) {
    (self.request, self.call) = (request, call)
    size = (request.knownOperations ?? []).reduce(0) { size, operation in
      if case .write(let data, _) = operation { size + data.count } else { size }
    }
  }
}

/// Writes of many tasks for the one connection that writes. While one group is committed, arriving writes
/// form the next one: group commit.
final class PostgreSQLWriters: Sendable {
  private struct State {
    var waiting: [PostgreSQLWrite] = []
    var isBusy = false
    /// Writes that are being committed, or wait for the connection.
    var underWay: [PostgreSQLCall<Void>] = []
    /// Writes that have failed as a group, and are committed separately after the one in progress.
    var next: [PostgreSQLCall<Void>] = []
    var lastCount = 1
    var isStopped = false
  }

  private let committer: PostgreSQLCommitter
  private let timeLimit: Duration
  private let thread = DedicatedThread()
  private let state = MutexProtected(State())

  init(_ committer: PostgreSQLCommitter, timeLimit: Duration) {
    self.committer = committer
    self.timeLimit = timeLimit
  }

  /// Returns once the request has been committed.
  func submit(_ request: WriteRequest) async throws {
    let call = PostgreSQLCall<Void>(isRead: false, within: timeLimit)
    let write = PostgreSQLWrite(request, call)
    try await call.wait {
      let isFirst = state.withLock { state in
        state.waiting.append(write)
        defer { state.isBusy = true }
        return !state.isBusy
      }
      guard isFirst else { return }
      do {
        try thread.enqueue { self.commitAll() }
      } catch {
        failWaiting(error)
        throw error
      }
    }
  }

  /// Fails all waiting calls, since no thread could be started. Their callers relied on this one to start it.
  private func failWaiting(_ error: any Error) {
    let waiting = state.withLock { state in
      defer { (state.waiting, state.isBusy) = ([], false) }
      return state.waiting
    }
    for write in waiting { write.call.fail(error) }
  }

  /// Runs `work` on the writing thread. It must check the flag from time to time.
  func run<Result: Sendable>(
    _ work: @escaping @Sendable (CancellationFlag) throws -> Result
  ) async throws -> Result {
    try await thread.runCancellably(work)
  }

  /// Ends the thread and its work. No caller may be waiting for a write. Does not wait for the body of a transaction
  /// that was cancelled: the thread, and the connection with it, ends by itself once the body has returned (rule T5).
  func close() {
    state.withLock { $0.isStopped = true }
    if committer.runsBodies { thread.stopWithoutWaiting() } else { thread.stop() }
  }

  // MARK: On the thread

  private func commitAll() {
    while let next = nextGroup() {
      let group = next.filter { $0.call.beginConnecting() }
      if group.isEmpty { continue }
      state.withLock { $0.underWay = group.map(\.call) }
      connectAndCommit(group)
      state.withLock { $0.underWay = [] }
    }
  }

  private func connectAndCommit(_ group: [PostgreSQLWrite]) {
    do {
      try committer.connect(until: group.map(\.call.deadline).min() ?? .now) { [self] in
        try endOverdueCalls()
        if !group.contains(where: { $0.call.isWanted }) { throw CancellationError() }
      }
    } catch {
      for write in group { write.call.fail(error) }
      return
    }
    commit(group)
  }

  /// The maximum number of bytes of values that are committed together, unless one write has more.
  private static let largestGroup = PostgreSQLBatch.statementSize

  private func nextGroup() -> [PostgreSQLWrite]? {
    // Waits briefly: tasks whose writes have just been committed usually write again.
    let expected = state.withLock { $0.waiting.isEmpty && $0.lastCount == 1 ? 0 : $0.lastCount }
    if expected > 1 { DedicatedThread.spin { state.withLock { $0.waiting.count } >= expected } }
    return state.withLock { state in
      guard !state.waiting.isEmpty else {
        state.isBusy = false
        return nil
      }
      var size = 0
      let group = state.waiting.prefix { write in
        let isFitting = size == 0 || size + write.size <= Self.largestGroup
        size += write.size
        return isFitting
      }
      state.waiting.removeFirst(group.count)
      state.lastCount = group.count
      return Array(group)
    }
  }

  /// - Parameter lockWait: How long to wait for each lock, if not for the usual time.
  private func commit(_ writes: [PostgreSQLWrite], waitingForLocks lockWait: Duration? = nil) {
    let error: any Error
    do {
      let rest = try commitTogether(writes, waitingForLocks: lockWait)
      for write in writes.dropLast(rest.count) { write.call.end(.success(())) }
      if !rest.isEmpty { commit(Array(rest)) }
      return
    } catch let failure as PostgreSQLCommitter.FailedConnection {
      for write in writes { write.call.fail(failure.underlying) }
      return
    } catch let failure {
      error = failure
    }
    if let error = error as? StorageError, error.code == .outcomeUnknown {
      for write in writes { write.call.failWithUnknownOutcome(error) }
      return
    }
    guard writes.count > 1, !Self.affectsAll(error) else {
      for write in writes { write.call.fail(error) }
      return
    }
    // Nothing has been written. The writes are committed separately, so that one that fails does not affect the others.
    for write in writes { write.call.retract() }
    let isLocked = (error as? StorageError)?.code == .locked
    for (index, write) in writes.enumerated() {
      let next = writes[(index + 1)...]
      state.withLock { $0.next = next.map(\.call) }
      // They have already waited together. One that cannot get its lock must leave time for the others.
      let left = max(.zero, write.call.deadline - .now)
      commit([write], waitingForLocks: isLocked ? left / (2 * (next.count + 1)) : nil)
    }
  }

  private func commitTogether(
    _ writes: [PostgreSQLWrite], waitingForLocks lockWait: Duration?
  ) throws -> ArraySlice<PostgreSQLWrite> {
    try committer.commit(writes, waitingForLocks: lockWait) { [self] in try endOverdueCalls() }
  }

  /// Whether each request alone would fail with the same error. An error may concern only some of them: for example, if
  /// the role lacks a privilege, if an entry is corrupted, or if a request waits for a lock that the others do not
  /// need.
  private static func affectsAll(_ error: any Error) -> Bool {
    if error is PostgreSQLCommitter.FailedRead { return false }
    guard let code = (error as? StorageError)?.code else { return true }
    return ![.valueTooLarge, .diskFull, .io, .unsupported, .permissionDenied, .corrupted, .locked]
      .contains(code)
  }

  /// Ends overdue calls.
  ///
  /// - Throws: `CancellationError` if the writers have been closed.
  private func endOverdueCalls() throws {
    let (waiting, underWay, next, isStopped) = state.withLock {
      ($0.waiting, $0.underWay, $0.next, $0.isStopped)
    }
    if isStopped { throw CancellationError() }
    for write in waiting { write.call.endIfDue() }
    for call in underWay { call.endIfDue() }
    for call in next { call.endIfLate() }
  }
}
