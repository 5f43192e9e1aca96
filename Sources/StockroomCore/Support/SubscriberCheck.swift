/// Finds those who subscribe in another feed, of this process or of another, while a write is under way (rule X1).
///
/// They get from the ``ChangeLog`` what is announced from then on. What had been committed before, and is acknowledged after, its writer has to
/// report: so there is one more look at the log before each write returns. It is not repeated by the next write if that follows at once.
final class SubscriberCheck: Sendable {
  private struct State {
    /// What was found by the last look.
    var log: ChangeLog?
    /// What the log said then. Nil: there was none.
    var subscription: UInt64?
    /// Until when the last look does, which has found no log.
    var absentUntil = ContinuousClock.now
    var writesUnderWay = 0
    /// Whether some of them may have been committed.
    var hasCommitted = false
    var isClosed = false
  }

  private let path: String
  private let state = MutexProtected(State())

  /// How long one look does. A subscription takes longer; what is committed during one is found by the look after it.
  private static let absenceLifetime = Duration.microseconds(50)

  /// - Parameter path: That of the log.
  init(path: String) { self.path = path }

  // MARK: Commits

  /// Whether there was no log a moment ago.
  var isLogKnownToBeAbsent: Bool {
    state.withLock { $0.subscription == nil && ContinuousClock.now < $0.absentUntil }
  }

  /// The log has been found before a commit, which is about to be written into it.
  func noteLog(_ log: ChangeLog) throws { try state.withLock { try note(log, &$0) } }

  /// Something is about to be committed.
  func noteCommit() { state.withLock { $0.hasCommitted = $0.writesUnderWay > 0 } }

  // MARK: Writes

  func beginWrite() { state.withLock { $0.writesUnderWay += 1 } }

  func endWrite() {
    state.withLock { state in
      look(&state)
      state.writesUnderWay -= 1
      if state.writesUnderWay == 0 { state.hasCommitted = false }
    }
  }

  private func look(_ state: inout State) {
    do {
      state.log = try ChangeLog.find(atPath: path, known: state.log)
      if let log = state.log {
        try note(log, &state)
        if state.isClosed { state.log = nil }
      } else {
        (state.subscription, state.absentUntil) = (nil, ContinuousClock.now + Self.absenceLifetime)
      }
    } catch {
      // Subscribers find out themselves that there is something wrong with the log, and take it for a change of everything.
    }
  }

  private func note(_ log: ChangeLog, _ state: inout State) throws {
    let subscription = try log.subscription()
    if subscription == state.subscription { return }
    if state.hasCommitted { try log.noteMissedCommits() }
    state.subscription = subscription
  }

  /// Closes the log. Writes that end later open it again, each for itself.
  func close() {
    state.withLock { state in
      state.log = nil
      state.isClosed = true
    }
  }
}
