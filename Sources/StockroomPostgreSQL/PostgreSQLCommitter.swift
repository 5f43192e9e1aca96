import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The connection that writes, on the engine's own thread, and the state that is needed to determine what has
/// been committed.
///
/// Each engine has its own row in the table `commits`, with an epoch that each commit of the engine advances by one, in
/// the same transaction. When the answer to a commit is lost, the engine *claims* the row on a new connection: it
/// checks whether the epoch has been advanced, and if not, advances it by two. So the commit either has succeeded or
/// never will, however long it is delayed: it would find another epoch than it expects. This relies only on rows of the
/// server, so it also works after a failover, where the ID of a transaction proves nothing.
final class PostgreSQLCommitter: Sendable {
  struct State {
    var connection: PostgreSQLConnection?
    /// The same connection. Stays set after ``connection`` is nil, as long as the writing thread uses it: it counts
    /// towards the limit of connections.
    weak var existing: PostgreSQLConnection?
    /// The epoch of the row, as far as it is known.
    var epoch: Int64 = 0
  }

  let connector: PostgreSQLConnector
  let hub: ChangeHub
  /// Identifies the row and the notifications.
  let writer = UUID()
  /// Used only on the writing thread, except by ``close()`` and ``holder``.
  let state = MutexProtected(State())
  let unknownEpochs = MutexProtected<Set<Int64>>([])
  private let isRunningBodies = MutexProtected(false)

  /// The maximum number of attempts to make a commit that conflicts with others.
  private static let maximumAttempts = 12

  init(_ connector: PostgreSQLConnector, _ hub: ChangeHub) {
    self.connector = connector
    self.hub = hub
  }

  // MARK: Committing

  /// The operations of the requests, as one transaction.
  private struct Group {
    let requests: [WriteRequest]
    let operations: [[StorageOperation]]
    let batch: PostgreSQLBatch

    init(_ requests: [WriteRequest], _ operations: [[StorageOperation]]) {
      self.requests = requests
      self.operations = operations
      batch = PostgreSQLBatch(operations, requests.times(of: operations))
    }
  }

  /// The reason why an attempt to commit did not succeed.
  private enum FailedAttempt: Error {
    /// The row has another epoch than expected, so nothing has been written.
    case fencedOff
    /// Nothing has been sent, or nothing that could commit.
    case lostBefore(any Error)
    case lostDuring(any Error)
    case conflict(PostgreSQLFailure)
  }

  /// One of several transactions could not read, so each of them must be committed alone.
  struct FailedRead: Error {}

  /// There is no connection for writing, so none of the writes has been tried.
  struct FailedConnection: Error { let underlying: any Error }

  /// Returns once there is a connection for writing, on which nothing has been sent for a write.
  func connect(
    until deadline: ContinuousClock.Instant, meanwhile: @escaping () throws -> Void
  ) throws {
    _ = try connected(until: deadline, meanwhile)
  }

  /// Commits the writes, in this order, together, or throws with nothing done. Writes whose calls end before
  /// the commit is sent are skipped, and none is sent after its deadline.
  ///
  /// - Parameter lockWait: How long to wait for each lock, if not for the usual time.
  /// - Returns: The last writes, if they were left out because the transactions before them took too long. They have
  ///   not been sent.
  /// - Throws: `StorageError`, with code `outcomeUnknown` if the commit may have taken effect; ``FailedRead``;
  ///   ``FailedConnection``; `CancellationError` if all calls have ended.
  func commit(
    _ writes: [PostgreSQLWrite], waitingForLocks lockWait: Duration?, meanwhile: @escaping () throws -> Void
  ) throws -> ArraySlice<PostgreSQLWrite> {
    let preparation = lockWait.map { [PostgreSQLConnection.Step(limitingLockWaits: $0)] } ?? []
    let isOpen = writes.contains { $0.request.knownOperations == nil }
    var (attempt, losses) = (0, 0)
    while true {
      for write in writes {
        // Statements sent by an earlier attempt have not taken effect.
        write.call.retract()
        write.call.endIfLate()
      }
      guard var deadline = firstDeadline(of: writes) else { throw CancellationError() }
      var answer = deadline
      var rest: ArraySlice<PostgreSQLWrite> = []
      do {
        let connection = try connectionForCommit(until: deadline) {
          try meanwhile()
          if !writes.contains(where: \.call.isWanted) { throw CancellationError() }
        }
        if isOpen {
          try begin(preparation, on: connection, until: deadline)
        } else {
          // A write that is begun with hardly any time left would be abandoned in the middle.
          for write in writes { write.call.endIfLate(reserving: limit / 8) }
          guard let first = firstDeadline(of: writes) else { throw CancellationError() }
          (deadline, answer) = (first, first)
        }
        guard let (wanted, group) = try prepare(writes, isOpen: isOpen, on: connection) else { return [] }
        rest = writes[(writes.lastIndex { $0.call === wanted.last?.call } ?? writes.endIndex - 1)...]
          .dropFirst()
        // Commits all of them or none: if one call has ended, the later bodies have seen changes that will not be made.
        let begun = wanted.filter { $0.call.begin() }
        guard !begun.isEmpty, begun.count == wanted.count else {
          if isOpen { drop() }
          continue
        }
        connection.meanwhile = meanwhile
        // The server gets its full time to answer, however long the bodies have taken.
        if isOpen { answer = max(deadline, .now + limit / 2) }
        // A quarter is left to determine the outcome of a commit whose answer does not arrive.
        try commit(
          group, after: isOpen ? [] : preparation, isOpen: isOpen, on: connection,
          until: .now + (answer - .now) * 0.75)
        if wanted.allSatisfy(\.call.isWanted) {
          hub.send(group.requests, group.operations)
        } else {
          // The caller of an abandoned request has not seen its own change, although it is the origin.
          hub.send(.everything)
        }
        return rest
      } catch FailedAttempt.fencedOff {
        drop()
      } catch FailedAttempt.lostBefore(let error) {
        drop()
        guard ContinuousClock.now < deadline else { throw error }
        // The first loss is usually a connection that had ended while idle. A new one may be available immediately.
        try pause(writes, losses, until: deadline, meanwhile)
        losses += 1
      } catch FailedAttempt.lostDuring(let error) {
        drop()
        if try isCommitted(until: answer, after: error, meanwhile) {
          hub.send(.everything)
          return rest
        }
        try pause(writes, losses, until: deadline, meanwhile)
        losses += 1
      } catch FailedAttempt.conflict(let failure) {
        attempt += 1
        guard attempt < Self.maximumAttempts, ContinuousClock.now < deadline else {
          throw StorageError(
            .conflict,
            "Others have changed the same entries during each of \(attempt) attempts. Nothing has been written.",
            underlying: failure)
        }
        // Waits for a random time, so that conflicting writers do not meet again.
        usleep(UInt32.random(in: 0..<1_000) << min(attempt, 7))
      }
    }
  }

  /// Waits before the next attempt, unless this is the first loss. None of the writes has taken effect, so they can be
  /// cancelled immediately.
  private func pause(
    _ writes: [PostgreSQLWrite], _ losses: Int, until deadline: ContinuousClock.Instant,
    _ meanwhile: () throws -> Void
  ) throws {
    guard losses > 0 else { return }
    for write in writes { write.call.retract() }
    try PostgreSQLConnector.pause(losses - 1, until: deadline, meanwhile)
  }

  private var limit: Duration { connector.settings.timeLimit }

  /// The deadline of the first call that is still waited for; nil if there are none.
  private func firstDeadline(of writes: [PostgreSQLWrite]) -> ContinuousClock.Instant? {
    writes.filter(\.call.isWanted).map(\.call.deadline).min()
  }

  /// Begins a transaction, and locks out all other writers.
  private func begin(
    _ preparation: [PostgreSQLConnection.Step], on connection: PostgreSQLConnection,
    until deadline: ContinuousClock.Instant
  ) throws {
    do {
      var steps: [PostgreSQLConnection.Step] = [.init(.beginWriting), .init(.lockExclusively)]
      steps.insert(contentsOf: preparation, at: 1)
      _ = try connection.run(steps, until: deadline)
    } catch {
      // If the session stayed open, it could acquire the lock later and keep it.
      drop()
      guard let failure = error as? PostgreSQLFailure else { throw error }
      if failure.isConnectionLost { throw FailedAttempt.lostBefore(self.error(failure)) }
      if failure.isConcurrency { throw FailedAttempt.conflict(failure) }
      throw self.error(failure)
    }
  }

  /// Determines the writes whose calls have not ended, and their operations, which the caller must commit. Runs the
  /// bodies of transactions. Leaves out the last writes if the earlier bodies have taken long: otherwise the calls of
  /// these would end in the meantime.
  ///
  /// - Returns: Nil if there is nothing to commit: the body of the only transaction could not read, and has received
  ///   the error.
  private func prepare(
    _ writes: [PostgreSQLWrite], isOpen: Bool, on connection: PostgreSQLConnection
  ) throws -> (wanted: [PostgreSQLWrite], group: Group)? {
    // Set before the waiting calls are determined, so that ``runsBodies`` is true even for a body whose call ends in the meantime.
    isRunningBodies.withLock { $0 = isOpen }
    defer { isRunningBodies.withLock { $0 = false } }
    let wanted = writes.filter(\.call.isWanted)
    let requests = wanted.map(\.request)
    guard isOpen else { return (wanted, Group(requests, requests.compactMap(\.knownOperations))) }
    let reader = PostgreSQLEntryReader(connection, waiting: limit / 4, atMost: limit)
    let end = ContinuousClock.now + limit / 4
    let operations = requests.operations(reading: reader, PostgreSQLStorageEngine.valueLimit) {
      ContinuousClock.now < end
    }
    let group = Group(Array(requests.prefix(operations.count)), operations)
    guard let failure = reader.failure else { return (Array(wanted.prefix(operations.count)), group) }
    drop()
    // All calls have ended.
    if failure is CancellationError { throw failure }
    if connection.isLost { throw FailedAttempt.lostBefore(failure) }
    if requests.count > 1 { throw FailedRead() }
    guard group.batch.isEmpty else { throw failure }
    return nil
  }

  /// Whether bodies of transactions are running. They may run for any length of time, even after every call has ended.
  var runsBodies: Bool { isRunningBodies.withLock { $0 } }

  /// - Parameters:
  ///   - preparation: The first statements of a transaction that has not begun.
  ///   - isOpen: Whether the transaction has begun.
  private func commit(
    _ group: Group, after preparation: [PostgreSQLConnection.Step], isOpen: Bool,
    on connection: PostgreSQLConnection, until deadline: ContinuousClock.Instant
  ) throws {
    let epoch = state.withLock { $0.epoch }
    let isPooled = connector.settings.isPooled
    let announcement = PostgreSQLAnnouncement(of: writer, epoch, group.operations).text
    do {
      if isOpen, group.batch.isEmpty {
        _ = try connection.run([.init(.commit)], until: deadline)
        return
      }
      var steps = group.batch.steps(writer, epoch, announcement, isOpen: isOpen, isPooled: isPooled)
      steps.insert(contentsOf: preparation, at: isPooled ? 1 : 0)
      let results = try connection.run(steps, until: deadline)
      for (step, result) in zip(steps, results) where step.statement.reportsFence {
        guard try result.number(0, 0) == 1 else { throw FailedAttempt.fencedOff }
      }
    } catch let failure as PostgreSQLFailure {
      // This server does not accept writes, but another one may.
      if failure.isStandby {
        throw FailedAttempt.lostBefore(
          StorageError(.unavailable, "Writing to \(connector.address) failed", underlying: failure))
      }
      if failure.isConnectionLost {
        let error = error(failure)
        throw group.batch.isEmpty ? FailedAttempt.lostBefore(error) : FailedAttempt.lostDuring(error)
      }
      // The transaction was begun by a separate statement, so it is still open. Ending the connection ends it too.
      if isOpen || isPooled { drop() }
      // `division_by_zero`: see ``PostgreSQLStatement/fence``.
      if failure.sqlState == "22012" { throw FailedAttempt.fencedOff }
      if failure.isConcurrency { throw FailedAttempt.conflict(failure) }
      throw error(failure)
    } catch let cause where connection.isLost {
      // The wait for the answer has been abandoned, or has failed.
      throw FailedAttempt.lostDuring(cause)
    }
    state.withLock { $0.epoch += 1 }
    if connection.hasGivenUpReplication {
      hub.send(.everything)
      throw StorageError(
        .outcomeUnknown,
        "The server has committed the write, but no longer waits for a standby to confirm it.")
    }
  }

  func error(_ failure: PostgreSQLFailure) -> StorageError {
    .postgreSQL(failure, "Writing to \(connector.address) failed")
  }

  /// Whether this engine has already reported the commit with this epoch to its own subscribers.
  func isKnown(epoch: Int64) -> Bool { unknownEpochs.withLock { !$0.contains(epoch) } }

  // MARK: Leaving the place

  /// Removes the row of this engine. If that fails, other engines remove it after a week.
  func forget() {
    guard let connection = state.withLock({ $0.connection.take() }) else { return }
    _ = try? connection.run([.init(.forget, writer.parameter)], until: .now + .seconds(1))
  }

  /// Releases the connection, which ends immediately unless the writing thread is still using it.
  func close() { drop() }
}
