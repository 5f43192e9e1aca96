/// Detects subscribers in another feed, of this process or of another, while a write is in progress (rule
/// X1).
///
/// They receive later announcements from the ``ChangeLog``. A commit that was made before the subscription,
/// and is acknowledged after it, must be reported by its writer: therefore the log is checked again before
/// each write returns. The next write does not repeat the check if it follows immediately.
final class SubscriberCheck: Sendable {
  private struct State {
    /// The result of the last check.
    var log: ChangeLog?
    /// The subscription number of the log at that time. Nil if there was no log.
    var subscription: UInt64?
    /// The time until which the last check that found no log is valid.
    var absentUntil = ContinuousClock.now
    var writesUnderWay = 0
    /// Whether some of them may have been committed, or earlier ones whose check has failed.
    var hasCommitted = false
    var isClosed = false
  }

  private let path: String
  private let state = MutexProtected(State())

  /// How long a check is valid. A subscription takes longer; a commit during one is found by the next check.
  private static let absenceLifetime = Duration.microseconds(50)

  /// - Parameter path: The path of the log.
  init(path: String) { self.path = path }

  // MARK: Commits

  /// Whether there was no log a moment ago.
  var isLogKnownToBeAbsent: Bool {
    state.withLock { $0.subscription == nil && ContinuousClock.now < $0.absentUntil }
  }

  /// Records that the log has been found before a commit, which is about to be written to it.
  func noteLog(_ log: ChangeLog) throws { try state.withLock { try note(log, &$0) } }

  /// Records that a commit is about to be made.
  func noteCommit() { state.withLock { if $0.writesUnderWay > 0 { $0.hasCommitted = true } } }

  // MARK: Writes

  func beginWrite() { state.withLock { $0.writesUnderWay += 1 } }

  func endWrite() {
    state.withLock { state in
      let isChecked = findSubscribers(&state)
      state.writesUnderWay -= 1
      if isChecked, state.writesUnderWay == 0 { state.hasCommitted = false }
    }
  }

  /// Reports the commits that new subscribers may have missed.
  ///
  /// - Returns: Whether the subscribers so far need not be searched for again.
  private func findSubscribers(_ state: inout State) -> Bool {
    do {
      state.log = try ChangeLog.find(atPath: path, known: state.log)
      if let log = state.log {
        try note(log, &state)
        if state.isClosed { state.log = nil }
      } else {
        (state.subscription, state.absentUntil) = (nil, ContinuousClock.now + Self.absenceLifetime)
      }
      return true
    } catch let error as StorageError where [.unsupported, .corrupted].contains(error.code) {
      // Subscribers detect a defect of the log themselves, and treat it as a change of everything.
      return true
    } catch {
      // Only this process cannot open it, for example for lack of a descriptor.
      return false
    }
  }

  private func note(_ log: ChangeLog, _ state: inout State) throws {
    let subscription = try log.subscription()
    if subscription == state.subscription { return }
    if state.hasCommitted { try log.noteMissedCommits() }
    state.subscription = subscription
  }

  /// Closes the log. Writes that end later reopen it, each for itself.
  func close() {
    state.withLock { state in
      state.log = nil
      state.isClosed = true
    }
  }
}
