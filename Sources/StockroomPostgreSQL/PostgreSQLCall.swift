import StockroomCore

/// A call that is waiting or in progress, with any type of answer.
protocol PostgreSQLPendingCall: Sendable {
  /// The time at which the call ends in any case.
  var deadline: ContinuousClock.Instant { get }
  /// Whether the call has not ended yet.
  var isWanted: Bool { get }
  /// Records that its statements are being sent. Returns false if the call has ended or has begun before.
  func begin() -> Bool
  /// Starts the call's turn, after which it waits for a connection until its deadline. Returns false unless the call
  /// was waiting for its turn.
  @discardableResult func beginConnecting() -> Bool
  /// Takes back ``begin()``: the statements that were sent have had no effect, and must be sent again.
  func retract()
  /// Ends the call if it has waited for too long.
  func endIfDue()
  /// Ends the call if its deadline has passed and no part of it is in progress.
  func endIfLate()
  func fail(_ error: any Error)
}

/// A call that waits for its turn for at most half of its time limit, and then for the server (rule N1).
final class PostgreSQLCall<Answer: Sendable>: PostgreSQLPendingCall {
  typealias Finish = @Sendable (Result<Answer, any Error>) -> Void

  private enum Stage {
    case new
    case waiting(Finish)
    /// Its turn has come, and nothing that could change anything has been sent.
    case connecting(Finish)
    case underWay(Finish, cancelledAt: ContinuousClock.Instant?)
    case ended
  }

  private let stage = MutexProtected(Stage.new)
  /// Whether it may be ended while it is in progress, since it changes nothing.
  private let isRead: Bool
  private let lastStart: ContinuousClock.Instant
  let deadline: ContinuousClock.Instant

  /// How long a cancelled write waits for its outcome.
  private static var timeout: Duration { .seconds(1) }

  init(isRead: Bool, within limit: Duration) {
    self.isRead = isRead
    let now = ContinuousClock.now
    (lastStart, deadline) = (now + limit / 2, now + limit)
  }

  /// Suspends the caller until the call ends.
  ///
  /// - Parameter enqueue: Queues the call for a connection.
  /// - Throws: `CancellationError` immediately if the task is cancelled, unless it is a write that has been
  ///   sent.
  func wait(_ enqueue: () throws -> Void) async throws -> Answer {
    try Task.checkCancellation()
    return try await withTaskCancellationHandler {
      try await ThreadResult.wait { finish in
        let isCancelled = stage.withLock { stage in
          guard case .new = stage else { return true }
          stage = .waiting(finish)
          return false
        }
        if isCancelled { return finish(.failure(CancellationError())) }
        do {
          try enqueue()
        } catch {
          end(.failure(error))
        }
      }
    } onCancel: {
      cancel()
    }
  }

  private func cancel() {
    let finish = stage.withLock { stage -> Finish? in
      switch stage {
      case .new: stage = .ended
      case .underWay(let finish, nil) where !isRead: stage = .underWay(finish, cancelledAt: .now)
      case .waiting(let finish), .connecting(let finish):
        stage = .ended
        return finish
      case .underWay(let finish, _) where isRead:
        stage = .ended
        return finish
      case .underWay, .ended: break
      }
      return nil
    }
    finish?(.failure(CancellationError()))
  }

  /// Starts the call's turn. Until ``begin()``, it can still be cancelled immediately. Returns false unless the call
  /// was waiting for its turn.
  @discardableResult func beginConnecting() -> Bool {
    endIfDue()
    return stage.withLock { stage in
      guard case .waiting(let finish) = stage else { return false }
      stage = .connecting(finish)
      return true
    }
  }

  func begin() -> Bool {
    endIfDue()
    return stage.withLock { stage in
      switch stage {
      case .waiting(let finish), .connecting(let finish):
        stage = .underWay(finish, cancelledAt: nil)
        return true
      case .new, .underWay, .ended: return false
      }
    }
  }

  /// Takes back ``begin()``: the statements that were sent have had no effect, and never will. From now on the call can
  /// be cancelled immediately again. If its task has been cancelled already, it ends.
  func retract() {
    let finish = stage.withLock { stage -> Finish? in
      guard case .underWay(let finish, let cancelledAt) = stage else { return nil }
      stage = cancelledAt == nil ? .connecting(finish) : .ended
      return cancelledAt == nil ? nil : finish
    }
    finish?(.failure(CancellationError()))
  }

  func end(_ result: Result<Answer, any Error>) {
    let finish = stage.withLock { stage -> Finish? in
      defer { stage = .ended }
      return switch stage {
      case .waiting(let finish), .connecting(let finish), .underWay(let finish, _): finish
      case .new, .ended: nil
      }
    }
    finish?(result)
  }

  func fail(_ error: any Error) { end(.failure(error)) }

  /// Fails the call because the outcome of the sent statements is unknown. If nothing was sent for this call, it fails
  /// with `unavailable` instead: it has had no effect.
  func failWithUnknownOutcome(_ error: StorageError) {
    let isSent = stage.withLock { if case .underWay = $0 { true } else { false } }
    fail(
      isSent
        ? error
        : StorageError(
          .unavailable, "The outcome of what was sent before it is unknown. Nothing has been done.",
          underlying: error))
  }

  var isWanted: Bool {
    stage.withLock { if case .ended = $0 { false } else { true } }
  }

  func endIfLate() { endIfLate(reserving: .zero) }

  /// Ends the call if no part of it is in progress, and no more than `time` is left.
  func endIfLate(reserving time: Duration) {
    let finish = stage.withLock { stage -> Finish? in
      guard case .connecting(let finish) = stage, ContinuousClock.now + time >= deadline else { return nil }
      stage = .ended
      return finish
    }
    finish?(.failure(StorageError(.unavailable, "It could not be done in time. Nothing has been done.")))
  }

  func endIfDue() {
    let now = ContinuousClock.now
    let error = stage.withLock { stage -> StorageError? in
      switch stage {
      case .waiting where now >= lastStart:
        StorageError(.unavailable, "No connection became free in time. Nothing has been done.")
      case .underWay(_, let cancelledAt?) where now >= cancelledAt + Self.timeout:
        StorageError(
          .outcomeUnknown,
          "The task was cancelled before the server had reported whether the write was committed.")
      default: nil
      }
    }
    if let error { fail(error) }
  }
}
