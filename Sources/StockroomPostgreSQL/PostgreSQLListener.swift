import StockroomCore

/// The connection on which notifications of other engines' commits arrive, as long as there are subscribers.
final class PostgreSQLListener: Sendable {
  private typealias Subscription = PostgreSQLCall<Void>

  private struct State {
    /// Callers that wait until notifications arrive.
    var waiting: [Subscription] = []
    var isRunning = false
    var isListening = false
    var isStopped = false
  }

  private let connector: PostgreSQLConnector
  private let committer: PostgreSQLCommitter
  private let hub: ChangeHub
  private let thread = DedicatedThread()
  private let state = MutexProtected(State())
  private let signal: PostgreSQLSignal

  init(_ connector: PostgreSQLConnector, _ committer: PostgreSQLCommitter, _ hub: ChangeHub) throws {
    (self.connector, self.committer, self.hub) = (connector, committer, hub)
    signal = try PostgreSQLSignal()
  }

  /// Returns when notifications of all later commits arrive here.
  func start() async throws {
    let call = Subscription(isRead: true, within: connector.settings.timeLimit)
    try await call.wait {
      let (isListening, isFirst) = state.withLock { state in
        if state.isListening { return (true, false) }
        state.waiting.append(call)
        defer { state.isRunning = true }
        return (false, !state.isRunning)
      }
      if isListening { call.end(.success(())) }
      guard isFirst else { return }
      do {
        try thread.enqueue { self.run() }
      } catch {
        state.withLock { $0.isRunning = false }
        failWaiting(error)
      }
    }
  }

  /// Ends the connection if there are no subscribers any more.
  func stopIfUnused() { if !hub.hasSubscribers { signal.send() } }

  /// Makes the listener connect to the server that has become the primary.
  func move() { signal.send() }

  func close() {
    state.withLock { $0.isStopped = true }
    signal.send()
    thread.stop()
  }

  // MARK: On the thread

  private var isWanted: Bool {
    let (isStopped, isAwaited) = state.withLock { ($0.isStopped, $0.waiting.contains(where: \.isWanted)) }
    return !isStopped && (isAwaited || hub.hasSubscribers)
  }

  private func run() {
    var isFirst = true
    while continues() {
      var isConnected = false
      do {
        let (connection, hasWaited) = try connect()
        // Notifications that were sent while there was no connection are lost (rule X5). Commits that were in progress
        // while this waited have sent no notification, but may be acknowledged only now (rule X1).
        if !isFirst || hasWaited { hub.send(.everything) }
        (isFirst, isConnected) = (false, true)
        let waiting = state.withLock { state in
          defer { (state.waiting, state.isListening) = ([], true) }
          return state.waiting
        }
        for call in waiting { call.end(.success(())) }
        defer { state.withLock { $0.isListening = false } }
        try receive(on: connection)
      } catch {
        // If a connection has become unused or was lost, subscribers that have just arrived wait for the next one.
        if !isConnected, !(error is CancellationError) { failWaiting(error) }
        signal.wait(for: nil, atMost: .milliseconds(250))
      }
    }
  }

  /// Whether the thread must continue. If not, the next subscriber starts it again.
  private func continues() -> Bool {
    state.withLock { state in
      let isNeeded =
        !state.isStopped && (state.waiting.contains(where: \.isWanted) || hub.hasSubscribers)
      if !isNeeded { state.isRunning = false }
      return isNeeded
    }
  }

  /// - Returns: The connection, and whether it had to wait for commits that send no notifications.
  private func connect() throws -> (connection: PostgreSQLConnection, hasWaited: Bool) {
    let usual = ContinuousClock.now + connector.settings.timeLimit / 2
    let first = state.withLock { $0.waiting.filter(\.isWanted).map(\.deadline).min() }
    let deadline = min(first ?? usual, usual)
    let checkStillNeeded = { [self] in if !isWanted { throw CancellationError() } }
    var failures = 0
    // The listener keeps its connection, so it requests one only if another remains for reads and writes.
    let connection = try connector.connect(
      until: deadline, for: .writing, after: &failures, requestsRelease: { connector.share.count > 1 },
      meanwhile: checkStillNeeded)
    _ = try connection.run([.init(.listen)], until: deadline)
    let result = try connection.run([.init(.tryToMarkSubscriber)], until: deadline).first
    if result?.isTrue(0, 0) == true { return (connection, false) }
    // Waits for the commits in progress that began before this subscriber was marked.
    _ = try connection.run([.init(.markSubscriber)], until: deadline)
    return (connection, true)
  }

  /// Forwards notifications until there are no subscribers, or another server has become the primary.
  private func receive(on connection: PostgreSQLConnection) throws {
    while isWanted {
      // The changes are now made on another server.
      if connector.isOutdated(connection) { return }
      for payload in try connection.notifications() {
        let announcement = PostgreSQLAnnouncement(payload)
        // The engine's own commits have already been reported.
        if announcement.writer == committer.writer.uuidString, committer.isKnown(epoch: announcement.epoch) {
          continue
        }
        hub.send(announcement.change)
      }
      signal.wait(for: connection.socket, atMost: nil)
    }
  }

  /// Fails waiting calls, except those that another connection can still serve if this one has been lost.
  private func failWaiting(_ error: any Error) {
    let isLost = (error as? PostgreSQLFailure)?.isConnectionLost ?? false
    let now = ContinuousClock.now
    let waiting = state.withLock { state in
      let failed = state.waiting.filter { !isLost || !$0.isWanted || now >= $0.deadline }
      state.waiting.removeAll { call in failed.contains { $0 === call } }
      return failed
    }
    let error =
      (error as? PostgreSQLFailure).map {
        StorageError.postgreSQL($0, "Subscribing to \(connector.address) failed")
      } ?? error
    for call in waiting { call.end(.failure(error)) }
  }
}
