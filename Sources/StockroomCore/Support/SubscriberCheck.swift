/// Detects subscribers in another feed, of this process or of another, while a write is in progress (rule
/// X1).
///
/// Such subscribers receive later commits from the ``ChangeLog``. A commit that was made before the subscription, and is
/// acknowledged after it, must be reported by its writer: therefore the log is checked again before each write returns. Writes that
/// follow a check immediately do not repeat it, such as the others of a group.
final class SubscriberCheck: Sendable {
  private struct State {
    /// The result of the last check.
    var log: ChangeLog?
    /// The subscription number of the log at that time. Nil if there was no log.
    var subscription: UInt64?
    /// The time until which the last check that found no log is valid.
    var absentUntil = ContinuousClock.now
    var writesUnderWay = 0
    /// Whether some of these writes may have been committed, or earlier writes whose check has failed.
    var hasCommitted = false
    var isClosed = false

    var isLogKnownToBeAbsent: Bool { subscription == nil && ContinuousClock.now < absentUntil }
  }

  private let path: String
  private let state = MutexProtected(State())

  /// How long a check that found no log is valid. A subscription takes at least as long after it has created the log, so it returns
  /// after the writes that rely on the check.
  static let absenceLifetime = Duration.microseconds(50)

  /// - Parameter path: The path of the log.
  init(path: String) { self.path = path }

  // MARK: Commits

  /// Whether the last check found no log and is still valid.
  var isLogKnownToBeAbsent: Bool { state.withLock { $0.isLogKnownToBeAbsent } }

  /// Records that there is a log, to which a commit is about to be written.
  func noteLog(_ log: ChangeLog) throws { try state.withLock { try note(log, &$0) } }

  /// Records that a commit is about to be made.
  func noteCommit() { state.withLock { if $0.writesUnderWay > 0 { $0.hasCommitted = true } } }

  // MARK: Writes

  func beginWrite() { state.withLock { $0.writesUnderWay += 1 } }

  func endWrite() {
    state.withLock { state in
      let isChecked = state.isLogKnownToBeAbsent || findSubscribers(&state)
      state.writesUnderWay -= 1
      if isChecked, state.writesUnderWay == 0 { state.hasCommitted = false }
    }
  }

  /// Reports the commits that new subscribers may have missed.
  ///
  /// - Returns: Whether the check succeeded. If not, the next write must repeat it for these commits.
  private func findSubscribers(_ state: inout State) -> Bool {
    let start = ContinuousClock.now
    do {
      state.log = try ChangeLog.find(atPath: path, known: state.log)
      if let log = state.log {
        try note(log, &state)
        if state.isClosed { state.log = nil }
      } else {
        (state.subscription, state.absentUntil) = (nil, start + Self.absenceLifetime)
      }
      return true
    } catch let error as StorageError where [.unsupported, .corrupted].contains(error.code) {
      // Subscribers detect a defect of the log themselves, and treat it as a change of everything.
      return true
    } catch {
      // This process alone cannot open the log, for example for lack of a descriptor.
      return false
    }
  }

  private func note(_ log: ChangeLog, _ state: inout State) throws {
    let subscription = try log.subscription()
    if subscription == state.subscription { return }
    if state.hasCommitted { try log.noteMissedCommits() }
    state.subscription = subscription
  }

  /// Closes the log. Each write that ends later reopens it.
  func close() {
    state.withLock { state in
      state.log = nil
      state.isClosed = true
    }
  }
}
