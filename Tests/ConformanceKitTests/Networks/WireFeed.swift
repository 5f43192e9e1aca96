import Foundation
import StockroomCore

@testable import ConformanceKit

/// What the subscribers of a ``WireEngine`` hear: a connection on which the server tells of changes, another one when it is lost,
/// and what an engine may do wrong then.
final class WireFeed: Sendable {
  private struct State {
    var socket: Int32?
    var isStopped = false
    /// How many changes the server had made when it was last heard.
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
    // Behind the lock, as the number of a socket that is closed may be another's by then.
    state.withLock { state in
      state.isStopped = true
      if let socket = state.socket { NetworkSocket.shutDown(socket) }
    }
  }

  private var isStopped: Bool { state.withLock { $0.isStopped } }

  /// Listens until it is stopped. On a thread of its own.
  ///
  /// - Parameters:
  ///   - deadline: When it is given up if it has not begun.
  ///   - begun: Called once: when the server tells of whatever comes, or with false when nothing will come.
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
        // What was told while there was no connection is lost.
        let isSilent = fault == .listensAgainSilently || fault == .comparesCounts && changeCount <= count
        if hasBegun, !isSilent { hub.send(.everything) }
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

  private var changeCount: Int { state.withLock { $0.changeCount } }

  /// Passes on what the server tells, until the connection ends.
  private func receive(_ reader: inout LineReader) {
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
    // The system takes its time before it tries again.
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

  /// Asks to be told of changes, or for nothing of the kind. Returns whether the server has answered.
  private func ask(
    _ kind: WireServer.Request.Kind, _ reader: inout LineReader, until deadline: ContinuousClock.Instant?
  ) -> Bool {
    guard send(kind, to: reader.socket), let answer = reader.next(until: deadline) else { return false }
    // The first change may come before the answer.
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
