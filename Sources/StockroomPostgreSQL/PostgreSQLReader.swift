import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A connection that reads, opened when it is needed, on its own thread.
final class PostgreSQLReader: Sendable {
  private struct State {
    /// Also nil while it is in use.
    var connection: PostgreSQLConnection?
    var isConnected = false
    /// Whether the connection in use must be ended afterwards.
    var isReleased = false
    /// The number of consecutive connections that could not be made, or have not answered.
    var failures = 0
    /// The number of consecutive reads that the server has cancelled because of conflicts.
    var conflicts = 0
  }

  private let connector: PostgreSQLConnector
  private let thread = DedicatedThread()
  /// Changed only on the thread, except by ``release()``.
  private let state = MutexProtected(State())

  init(_ connector: PostgreSQLConnector) { self.connector = connector }

  func start(_ work: @escaping @Sendable () -> Void) throws { try thread.enqueue(work) }

  func stop() { thread.stop() }

  // MARK: The connection

  /// Whether there is a connection that was not lost when it was last used.
  var isConnected: Bool { state.withLock { $0.isConnected } }

  /// Connects, after a pause that grows with the number of failures.
  ///
  /// - Parameter isAlone: Whether no other reader has a connection.
  func connect(
    until deadline: ContinuousClock.Instant, isAlone: () -> Bool, meanwhile: @escaping () throws -> Void
  ) throws {
    var failures = state.withLock { $0.failures }
    defer { state.withLock { $0.failures = failures } }
    let connection = try connector.connect(
      until: deadline, for: .reading, after: &failures, requestsRelease: isAlone, meanwhile: meanwhile)
    // Counts as a failure until the connection has answered: a pooler accepts connections even if there is no server
    // behind it.
    failures += 1
    // The handler belongs to this attempt: another reader may take the reads for which it was made.
    connection.meanwhile = {}
    state.withLock { ($0.connection, $0.isConnected) = (connection, true) }
  }

  private func keep(_ connection: PostgreSQLConnection) {
    connection.meanwhile = {}
    connection.firstAnswerDeadline = nil
    state.withLock { state in
      state.isConnected = !connection.isLost && !state.isReleased
      state.isReleased = false
      if !connection.isLost { state.failures = 0 }
      if state.isConnected { state.connection = connection }
    }
  }

  /// Whether there is a connection that has not been released.
  var isReleasable: Bool { state.withLock { $0.isConnected && !$0.isReleased } }

  /// Ends the connection, when it is not in use any more.
  func release() {
    let unused = state.withLock { state -> PostgreSQLConnection? in
      let unused = state.connection.take()
      if unused != nil { state.isConnected = false }
      state.isReleased = state.isConnected
      return unused
    }
    // The connection ends here, after the mutex is unlocked.
    withExtendedLifetime(unused) {}
  }

  // MARK: Reading

  private enum Outcome {
    case done
    /// The connection has been lost: the remaining reads must be repeated, which changes nothing (rule N2).
    case lost
    /// The server may have refused only one of the calls, so they must be repeated in smaller groups.
    case failedTogether
  }

  /// Reads a group of keys with one statement for all values, and one for all timestamps. A failing read does
  /// not affect the others.
  ///
  /// - Parameter isNew: Whether the connection has just been made.
  /// - Returns: The reads that must be repeated, since the connection has been lost.
  func perform(
    _ reads: [PostgreSQLReaders.SmallRead], isNew: Bool, meanwhile: @escaping () -> Void
  ) -> [PostgreSQLReaders.SmallRead] {
    let reads = reads.filter { $0.pending.begin() }
    switch serve(reads.map(\.pending), isNew: isNew, meanwhile, { try $0.answer(reads, until: $1) }) {
    case .done: return []
    case .lost: return reads.filter { $0.pending.isWanted }
    case .failedTogether:
      let half = reads.count / 2
      return [Array(reads[..<half]), Array(reads[half...])].flatMap {
        perform($0, isNew: false, meanwhile: meanwhile)
      }
    }
  }

  /// Does a long read. Returns whether it must be repeated, since the connection has been lost.
  func perform(_ read: any LargeRead, isNew: Bool, meanwhile: @escaping () -> Void) -> Bool {
    guard read.pending.begin() else { return false }
    let outcome = serve([read.pending], isNew: isNew, meanwhile) { connection, _ in
      try read.run(on: connection)
    }
    return outcome == .lost && read.pending.isWanted
  }

  /// Calls `body` with the connection and the first deadline. If the connection is lost, or a conflict occurs, the
  /// calls are retracted, so that they can be repeated, except those whose deadline has passed: they fail. If the
  /// server reports another error, a single call fails, and several are retracted, to be repeated in smaller groups.
  /// Any other error fails all calls.
  private func serve(
    _ calls: [any PostgreSQLPendingCall], isNew: Bool, _ meanwhile: @escaping () -> Void,
    _ body: (PostgreSQLConnection, ContinuousClock.Instant) throws -> Void
  ) -> Outcome {
    guard let deadline = calls.map(\.deadline).min() else { return .done }
    guard let connection = state.withLock({ $0.connection.take() }) else {
      for call in calls { call.retract() }
      return .lost
    }
    if connector.isOutdated(connection) {
      connection.discard()
      keep(connection)
      for call in calls { call.retract() }
      return .lost
    }
    connection.meanwhile = {
      meanwhile()
      if !calls.contains(where: { $0.isWanted }) { throw CancellationError() }
    }
    // If the connection has been lost without notice, there must be time left for another one.
    let start = ContinuousClock.now
    if !isNew { connection.firstAnswerDeadline = start + (deadline - start) / 2 }
    defer { keep(connection) }
    do {
      try body(connection, deadline)
      state.withLock { $0.conflicts = 0 }
      return .done
    } catch let failure as PostgreSQLFailure {
      let error = StorageError.postgreSQL(failure, "Reading from \(connector.address) failed")
      let isFinal = !failure.isConnectionLost && !failure.isConcurrency
      let isRefused = isFinal && calls.count == 1
      if failure.isConcurrency, !connection.isLost { pauseAfterConflict(connection, until: deadline) }
      let end = ContinuousClock.now
      for call in calls {
        if isRefused || end >= call.deadline { call.fail(error) } else { call.retract() }
      }
      return isRefused ? .done : isFinal ? .failedTogether : .lost
    } catch {
      for call in calls { call.fail(error) }
      return .done
    }
  }
}

extension PostgreSQLReader {
  /// Waits longer the more often in a row the server has cancelled reads. A standby that replays changes to what they
  /// read would cancel each immediate attempt too.
  private func pauseAfterConflict(_ connection: PostgreSQLConnection, until deadline: ContinuousClock.Instant)
  {
    let conflicts = state.withLock { state in
      defer { state.conflicts += 1 }
      return state.conflicts
    }
    do {
      try PostgreSQLConnector.pause(conflicts, until: deadline, connection.meanwhile)
    } catch {
      // All calls have ended.
    }
  }
}

extension PostgreSQLConnection {
  /// Answers the reads.
  fileprivate func answer(
    _ reads: [PostgreSQLReaders.SmallRead], until deadline: ContinuousClock.Instant
  ) throws {
    var values: [(key: CacheKey, call: PostgreSQLCall<Data?>)] = []
    var times: [(key: CacheKey, call: PostgreSQLCall<EntryHeader?>)] = []
    for read in reads {
      switch read {
      case .value(let key, let call): values.append((key, call))
      case .times(let key, let call): times.append((key, call))
      }
    }
    var steps: [Step] = []
    if values.count == 1 {
      steps.append(Step(.value, .key(values[0].key)))
    } else if !values.isEmpty {
      steps.append(Step(.values, PostgreSQLArray.keys(values.map(\.key))))
    }
    if !times.isEmpty { steps.append(Step(.times, PostgreSQLArray.keys(times.map(\.key)))) }
    let results = try run(steps, until: deadline)

    if values.count == 1 {
      values[0].call.end(.success(results[0].rowCount == 0 ? nil : results[0].data(0, 0)))
    } else if !values.isEmpty {
      let found = try results[0].positions(in: values)
      for (index, value) in values.enumerated() {
        value.call.end(.success(found[index].map { results[0].data($0, 1) }))
      }
    }
    if !times.isEmpty, let result = results.last {
      let found = try result.positions(in: times)
      for (index, time) in times.enumerated() {
        time.call.end(
          Result { try found[index].map { try result.header($0, created: 1, updated: 2, sequence: nil) } })
      }
    }
  }
}

extension PostgreSQLResult {
  /// The row with the answer to each request, if there is one. Each row begins with the number of its
  /// request.
  func positions(in requests: some Collection) throws -> [Int?] {
    var rows = [Int?](repeating: nil, count: requests.count)
    for row in 0..<rowCount {
      let index = Int(truncatingIfNeeded: try number(row, 0)) &- 1
      guard rows.indices.contains(index) else {
        throw StorageError(.corrupted, "The server has answered a request that was not made.")
      }
      rows[index] = row
    }
    return rows
  }
}
