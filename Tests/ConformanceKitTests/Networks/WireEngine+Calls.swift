import Foundation
import StockroomCore

@testable import ConformanceKit

// What a call sends, how long it waits, and what it does when the connection is lost.
extension WireEngine {
  func call(_ request: WireServer.Request) async throws -> WireServer.Answer {
    var request = request
    request.password = password
    let begun = ContinuousClock.now
    let (hasLost, isOpening) = state.withLock { ($0.hasLost, $0.isOpening) }
    let isCancellable =
      switch fault {
      case .ignoresCancellation: false
      case .cannotCancelRemovals: request.kind != .change || request.operations.contains { $0.data != nil }
      case .cannotCancelOpening: !isOpening
      case .cannotCancelLargeWrites: !request.operations.contains { ($0.data?.count ?? 0) > 1 << 20 }
      default: true
      }
    let result: Result<WireServer.Answer, any Error>
    if fault == .losesItsWayToRemoveAll, hasLost, request.operations.contains(where: { $0.key == nil }) {
      throw unavailable
    }
    let isBesideOthers =
      fault == .losesItsLimit && hasLost || fault == .connectsForEachList && request.isForKeys
    if isBesideOthers {
      result = await make(request, begun, isCancellable: isCancellable)
    } else {
      result = await places.pass { [request] in
        await make(request, begun, isCancellable: isCancellable)
      }
    }
    if fault == .leavesCallsAtClose, state.withLock({ $0.isClosed }) {
      try await Task.sleep(for: .seconds(600))
    }
    return try result.get()
  }

  /// - Parameter begun: When the call began, which may have waited for its turn since.
  private func make(
    _ request: WireServer.Request, _ begun: ContinuousClock.Instant, isCancellable: Bool
  ) async -> Result<WireServer.Answer, any Error> {
    // A call that has waited for its turn does not get the whole time limit again.
    let latest = fault == .countsFromItsTurn ? ContinuousClock.now : begun + timeLimit / 2
    let deadline = min(ContinuousClock.now, latest) + timeLimit
    let socket = MutexProtected<(socket: Int32?, isCancelled: Bool)>((nil, false))
    let shared = Shared(socket)
    return await withTaskCancellationHandler {
      do {
        return .success(
          try await ThreadResult.wait { finish in
            Thread.detachNewThread { [self] in
              finish(Result { try perform(request, until: deadline, shared) })
            }
          })
      } catch {
        return .failure(error)
      }
    } onCancel: {
      switch fault {
      case _ where !isCancellable: break
      case .isCancelledAtItsLimit, .abandonsCancelledConnections, .keepsCancelledConnections,
        .dropsLateAnswers:
        shared.cancelLater()
      default: shared.cancel()
      }
    }
  }

  private final class Shared: Sendable {
    let state: MutexProtected<(socket: Int32?, isCancelled: Bool)>
    init(_ state: consuming MutexProtected<(socket: Int32?, isCancelled: Bool)>) { self.state = state }

    var isCancelled: Bool { state.withLock { $0.isCancelled } }

    func cancelLater() { state.withLock { $0.isCancelled = true } }

    func use(_ socket: Int32?) { state.withLock { $0.socket = socket } }

    func cancel() {
      // While locked, because the number of a closed socket may be reused.
      state.withLock { state in
        state.isCancelled = true
        if let socket = state.socket { NetworkSocket.shutDown(socket) }
      }
    }
  }

  /// Retries until the deadline. Must run on a thread that may block.
  private func perform(
    _ request: WireServer.Request, until deadline: ContinuousClock.Instant, _ shared: Shared
  ) throws -> WireServer.Answer {
    var isInDoubt = false
    var losses = 0
    while true {
      if shared.isCancelled {
        let isUnknown = isInDoubt && fault != .callsCancelledWritesUndone
        throw isUnknown ? outcomeUnknown : CancellationError()
      }
      guard ContinuousClock.now < deadline else {
        if fault == .saysNothingIsThere, request.kind != .change { return .init() }
        if fault == .takesSilenceForSuccess { return .init() }
        throw isInDoubt ? outcomeUnknown : unavailable
      }
      do {
        if isInDoubt, !repeatsBlindly(request) {
          var question = request
          question.kind = .settle
          if try exchange(question, until: deadline, shared).hasHappened { return .init() }
          // The change will never happen, so a retry needs a new number.
          isInDoubt = false
          var again = request
          again.change = UUID()
          return try perform(again, until: deadline, shared)
        }
        return try exchange(request, until: deadline, shared)
      } catch Lost.before {
        state.withLock { $0.hasLost = true }
        if takesForDone(request) { return .init() }
        usleep(5_000)
      } catch Lost.during {
        state.withLock { $0.hasLost = true }
        if takesForDone(request) { return .init() }
        guard request.kind == .change else {
          if fault == .givesUpReads { throw StorageError(.io, "The connection has been lost.") }
          if fault == .neverReadsAgain || fault == .readsNoKeysAgain && request.isForKeys {
            throw unavailable
          }
          losses += 1
          if fault == .readsAgainOnce, losses > 1 { throw unavailable }
          usleep(1_000)
          continue
        }
        switch fault {
        case .callsLostAnswersFailures: throw unavailable
        case .callsLostAnswersSuccesses: return .init()
        case .neverKnows: throw StorageError(.io, "The connection has been lost.")
        case .neverFindsOut: throw outcomeUnknown
        default: isInDoubt = true
        }
      }
    }
  }

  /// Whether a change is repeated without checking if it has happened.
  private func repeatsBlindly(_ request: WireServer.Request) -> Bool {
    fault == .repeatsBlindly
      || fault == .repeatsRemovalsBlindly && request.operations.allSatisfy { $0.data == nil }
      || fault == .repeatsRemovalsOfAllBlindly && request.operations.contains { $0.key == nil }
  }

  private func takesForDone(_ request: WireServer.Request) -> Bool {
    fault == .takesLostRemovalsForDone && request.kind == .change
      && request.operations.allSatisfy { $0.data == nil }
  }

  private enum Lost: Error {
    case before, during
  }

  private var outcomeUnknown: StorageError {
    let text = "The answer has not come."
    return StorageError(
      .outcomeUnknown, text,
      underlying: fault == .showsThePasswordInDoubt ? StorageError(.io, "\(text) \(password)") : nil)
  }
  private var unavailable: StorageError {
    let text = "The server has not been reached."
    return StorageError(.unavailable, fault == .showsThePasswordWhileAway ? "\(text) \(password)" : text)
  }

  private func exchange(
    _ request: WireServer.Request, until deadline: ContinuousClock.Instant, _ shared: Shared
  ) throws -> WireServer.Answer {
    let (idle, hasLost) = state.withLock { ($0.idle.popLast(), $0.hasLost) }
    if hasLost, fault == .staysDisconnected { throw Lost.before }
    guard let socket = try idle ?? connect(until: deadline, shared) else { throw Lost.before }
    shared.use(socket)
    if fault == .dropsLateAnswers { dropInput(of: socket) }
    var reader = LineReader(socket: socket)
    var line = try JSONEncoder().encode(request)
    line.append(UInt8(ascii: "\n"))
    let isSent =
      fault == .sendsWithoutALimit
      ? NetworkSocket.send(ArraySlice(line), to: socket)
      : NetworkSocket.send(line, to: socket, until: deadline)
    reader.takesOneReadForALine =
      fault == .takesOneReadForAMessage || fault == .takesOneReadForKeys && request.isForKeys
    if fault == .waitsForEachByte { reader.timeout = timeLimit }
    let keepsCancelled = fault == .keepsCancelledConnections || fault == .dropsLateAnswers
    let received =
      fault == .abandonsCancelledConnections || keepsCancelled
      ? nextUnlessCancelled(&reader, until: deadline, shared)
      : isSent ? next(&reader, until: waitsForEver ? nil : deadline) : nil
    shared.use(nil)
    guard let received else {
      let mayBeKept = keepsCancelled && shared.isCancelled || fault == .keepsSilentConnections
      if mayBeKept, !NetworkSocket.isEndedByPeer(socket) {
        state.withLock { $0.idle.append(socket) }
      } else if forgets(socket, shared, isNew: idle == nil) {
        state.withLock { $0.abandoned.append(socket) }
      } else {
        NetworkSocket.close(socket)
      }
      if fault == .takesTheEndForTheRest, request.isForKeys, reader.isInTheMiddle { return .init() }
      throw Lost.during
    }
    // With this fault, the connection stays open, and is never used again.
    if fault != .connectsForEachCall { state.withLock { $0.idle.append(socket) } }
    let answer = try JSONDecoder().decode(WireServer.Answer.self, from: received)
    if let refusal = answer.refusal {
      let text = fault == .showsThePassword ? "\(refusal) \(password)" : refusal
      throw StorageError(fault == .callsARefusalAnError ? .io : .permissionDenied, text)
    }
    return answer
  }

  /// Discards what has arrived since the last call: an answer that came too late.
  private func dropInput(of socket: Int32) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    let size = buffer.count
    while NetworkSocket.hasInput(socket), NetworkSocket.receive(socket, &buffer, size) > 0 {}
  }

  /// Whether a connection that is no longer needed is not closed.
  private func forgets(_ socket: Int32, _ shared: Shared, isNew: Bool) -> Bool {
    switch fault {
    case .forgetsRefusedConnections:
      // Not so many that the process has no descriptors left.
      isNew && NetworkSocket.isEndedByPeer(socket) && state.withLock { $0.abandoned.count < 20 }
    case .abandonsCancelledConnections: shared.isCancelled
    case .forgetsLostConnections: NetworkSocket.isEndedByPeer(socket)
    case .forgetsSilentConnections: !shared.isCancelled && !NetworkSocket.isEndedByPeer(socket)
    default: false
    }
  }

  /// A new connection; nil if there was none in time, or the call has been cancelled.
  private func connect(until deadline: ContinuousClock.Instant, _ shared: Shared) throws -> Int32? {
    if fault == .connectsWithoutALimit { return try NetworkSocket.connect(to: .loopback(port: port)) }
    let socket = try NetworkSocket.beginConnecting(to: port)
    do {
      let isConnected = try NetworkSocket.finishConnecting(socket) {
        ContinuousClock.now < deadline && (fault == .connectsThoughCancelled || !shared.isCancelled)
      }
      if isConnected { return socket }
    } catch {
      NetworkSocket.close(socket)
      throw error
    }
    NetworkSocket.close(socket)
    return nil
  }

  private func next(_ reader: inout LineReader, until deadline: ContinuousClock.Instant?) -> Data? {
    guard fault == .waitsForTheRest, let deadline else { return reader.next(until: deadline) }
    return NetworkSocket.wait(reader.socket, until: deadline) ? reader.next(until: nil) : nil
  }

  private var waitsForEver: Bool {
    fault == .waitsForEver || fault == .waitsForEverToBeOpened && state.withLock { $0.isOpening }
  }

  /// The next line, or nil if the call is cancelled before that, which leaves the connection unchanged.
  private func nextUnlessCancelled(
    _ reader: inout LineReader, until deadline: ContinuousClock.Instant, _ shared: Shared
  ) -> Data? {
    while !shared.isCancelled, ContinuousClock.now < deadline, !NetworkSocket.isEndedByPeer(reader.socket) {
      if let line = reader.next(until: min(deadline, .now + .milliseconds(5))) { return line }
    }
    return nil
  }
}
