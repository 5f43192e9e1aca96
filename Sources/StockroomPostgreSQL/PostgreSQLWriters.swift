import StockroomCore

/// Writes of many tasks on their way to the one connection that writes. While one group is committed, those that arrive make up the next
/// one: group commit.
final class PostgreSQLWriters: Sendable {
  private struct Write {
    let request: WriteRequest
    let call: PostgreSQLCall<Void>
  }

  private struct State {
    var waiting: [Write] = []
    var isBusy = false
    /// Those that are being committed, or wait for the connection.
    var underWay: [PostgreSQLCall<Void>] = []
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
    try await call.wait {
      let isFirst = state.withLock { state in
        state.waiting.append(Write(request: request, call: call))
        defer { state.isBusy = true }
        return !state.isBusy
      }
      guard isFirst else { return }
      do {
        try thread.enqueue { self.commitAll() }
      } catch {
        state.withLock { $0.isBusy = false }
        throw error
      }
    }
  }

  /// Does the work on the writing thread. It looks at the flag now and then.
  func run<Result: Sendable>(
    _ work: @escaping @Sendable (CancellationFlag) throws -> Result
  ) async throws -> Result {
    try await thread.runCancellably(work)
  }

  /// Ends the thread, and what it does: nobody waits for a write any more.
  func close() {
    state.withLock { $0.isStopped = true }
    thread.stop()
  }

  // MARK: On the thread

  private func commitAll() {
    while let next = nextGroup() {
      let group = next.filter { $0.call.takeTurn() }
      if group.isEmpty { continue }
      state.withLock { $0.underWay = group.map(\.call) }
      connectAndCommit(group)
      state.withLock { $0.underWay = [] }
    }
  }

  private func connectAndCommit(_ group: [Write]) {
    do {
      // A call that ends before there is a connection has sent nothing, and is left out.
      try committer.connect(until: group.map(\.call.deadline).min() ?? .now) { [self] in
        try lookAround()
        if !group.contains(where: { $0.call.isWanted }) { throw CancellationError() }
      }
    } catch {
      for write in group { write.call.fail(error) }
      return
    }
    let writes = group.filter { $0.call.begin() }
    if !writes.isEmpty { commit(writes) }
  }

  private func nextGroup() -> [Write]? {
    // The tasks whose writes have just been committed are about to write again.
    let expected = state.withLock { $0.waiting.isEmpty && $0.lastCount == 1 ? 0 : $0.lastCount }
    if expected > 1 { DedicatedThread.spin { state.withLock { $0.waiting.count } >= expected } }
    return state.withLock { state in
      guard !state.waiting.isEmpty else {
        state.isBusy = false
        return nil
      }
      defer { state.waiting = [] }
      state.lastCount = state.waiting.count
      return state.waiting
    }
  }

  private func commit(_ writes: [Write]) {
    let result = Result { try commit(writes.map(\.request), before: writes) }
    guard case .failure(let error) = result, writes.count > 1, !Self.affectsAll(error) else {
      for write in writes { write.call.end(result) }
      return
    }
    // One that cannot be done fails no other.
    for write in writes { write.call.end(Result { try commit([write.request], before: [write]) }) }
  }

  private func commit(_ requests: [WriteRequest], before writes: [Write]) throws {
    let deadline = writes.map(\.call.deadline).min() ?? .now
    try committer.commit(requests, until: deadline) { [self] in try lookAround() }
    // The caller of one that was given up does not know of its change, though it is the origin.
    if writes.contains(where: { !$0.call.isWanted }) { committer.reportUnknownChanges() }
  }

  /// Whether each request alone would meet with the same.
  private static func affectsAll(_ error: any Error) -> Bool {
    guard let code = (error as? StorageError)?.code else { return false }
    return ![.valueTooLarge, .diskFull, .io, .unsupported].contains(code)
  }

  /// Ends overdue calls.
  ///
  /// - Throws: `CancellationError` if nobody waits for a write any more.
  private func lookAround() throws {
    let (waiting, underWay, isStopped) = state.withLock { ($0.waiting, $0.underWay, $0.isStopped) }
    if isStopped { throw CancellationError() }
    for write in waiting { write.call.endIfDue() }
    for call in underWay { call.endIfDue() }
  }
}
