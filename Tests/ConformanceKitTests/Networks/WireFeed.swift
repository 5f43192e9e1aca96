import Foundation
import StockroomCore

@testable import ConformanceKit

/// The feed of a ``WireEngine``: a connection on which the server sends changes, which is replaced when it is lost,
/// with optional faults.
final class WireFeed: Sendable {
  private struct State {
    var socket: Int32?
    var isStopped = false
    /// The number of changes of the server as of its last message.
    var changeCount = 0
  }

  private let port: UInt16
  private let place: String
  private let fault: WireEngine.Fault
  private let hub: ChangeHub
  private let state = MutexProtected(State())

  init(port: UInt16, place: String, fault: WireEngine.Fault, _ hub: ChangeHub) {
    (self.port, self.place, self.fault, self.hub) = (port, place, fault, hub)
  }

  /// Ends the thread.
  func stop() {
    // While locked, because the number of a closed socket may be reused.
    state.withLock { state in
      state.isStopped = true
      if let socket = state.socket { NetworkSocket.shutDown(socket) }
    }
  }

  var isStopped: Bool { state.withLock { $0.isStopped } }

  /// Receives changes until it is stopped. Runs on a separate thread.
  ///
  /// - Parameters:
  ///   - deadline: When to give up if no connection has been established.
  ///   - begun: Called once: with true when the server sends changes, or with false if it will not.
  func run(until deadline: ContinuousClock.Instant, _ begun: (Bool) -> Void) {
    var hasBegun = false
    while !isStopped, !(hasBegun && fault == .staysDeaf), hasBegun || ContinuousClock.now < deadline {
      guard var reader = connect(until: hasBegun ? nil : deadline) else {
        usleep(1_000)
        continue
      }
      let kind: WireServer.Request.Kind = hasBegun && fault == .listensOnce ? .read : .listen
      let count = changeCount
      if ask(kind, &reader, until: hasBegun ? nil : deadline) {
        // Changes from the time without a connection are lost.
        let isSilent = fault == .listensAgainSilently || fault == .comparesCounts && changeCount <= count
        if hasBegun, !isSilent, let missed = missedChanges(&reader) { hub.send(missed) }
        if !hasBegun { begun(true) }
        hasBegun = true
        receive(&reader)
      }
      state.withLock { $0.socket = nil }
      NetworkSocket.close(reader.socket)
      usleep(1_000)
    }
    if !hasBegun { begun(false) }
  }

  /// What may have changed while there was no connection. With a fault, that is what is there now: removals are missed.
  private func missedChanges(_ reader: inout LineReader) -> StorageChange? {
    guard fault == .asksWhatIsThere else { return .everything }
    guard send(.readAll, to: reader.socket), let line = reader.next(until: nil),
      let answer = try? JSONDecoder().decode(WireServer.Answer.self, from: line)
    else { return nil }
    // A change may have arrived before the answer.
    pass(line)
    let keys = answer.entries.map { CacheKey(verbatim: String($0.key.dropFirst(place.count))) }
    return keys.isEmpty ? nil : .keys(Set(keys))
  }

  private var changeCount: Int { state.withLock { $0.changeCount } }

  /// Passes on the changes that the server sends, until the connection ends.
  private func receive(_ reader: inout LineReader) {
    reader.takesOneReadForALine = fault == .takesOneReadForAChange
    while let line = reader.next(until: nil) { pass(line) }
  }

  private func send(_ kind: WireServer.Request.Kind, to socket: Int32) -> Bool {
    guard let line = try? JSONEncoder().encode(WireServer.Request(kind: kind, key: place)) else {
      return false
    }
    return NetworkSocket.send(ArraySlice(line + Data("\n".utf8)), to: socket)
  }

  private func connect(until deadline: ContinuousClock.Instant?) -> LineReader? {
    guard let socket = try? NetworkSocket.beginConnecting(to: port) else { return nil }
    // Limits this attempt; another one follows.
    let soon = ContinuousClock.now + .milliseconds(200)
    let end = deadline.map { min($0, soon) } ?? soon
    let isConnected = try? NetworkSocket.finishConnecting(socket) { ContinuousClock.now < end && !isStopped }
    guard isConnected == true else {
      NetworkSocket.close(socket)
      return nil
    }
    let isWanted = state.withLock { state in
      if !state.isStopped { state.socket = socket }
      return !state.isStopped
    }
    if isWanted { return LineReader(socket: socket) }
    NetworkSocket.close(socket)
    return nil
  }

  /// Requests changes, or sends another request. Returns whether the server has answered.
  private func ask(
    _ kind: WireServer.Request.Kind, _ reader: inout LineReader, until deadline: ContinuousClock.Instant?
  ) -> Bool {
    guard send(kind, to: reader.socket), let answer = reader.next(until: deadline) else { return false }
    // The first change may arrive before the answer.
    pass(answer)
    return true
  }

  private func pass(_ line: Data) {
    guard let answer = try? JSONDecoder().decode(WireServer.Answer.self, from: line) else { return }
    state.withLock { $0.changeCount = answer.changeCount }
    let keys = answer.changed.map { CacheKey(verbatim: String($0.dropFirst(place.count))) }
    if answer.isEverythingChanged {
      hub.send(.everything)
    } else if !keys.isEmpty {
      hub.send(.keys(Set(keys)))
    }
  }
}
