import Foundation
import StockroomCore

#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// A proxy between an engine and its server, at a port of 127.0.0.1, that simulates failures of a network.
final class NetworkProxy: Sendable {
  private struct State {
    var server: ConformanceServer.Address
    var mode = Mode.open
    /// Prevents connections while the server is unreachable.
    var backlog: FullBacklog?
    /// How many bytes of answers are passed on before it stalls.
    var allowance = Int.max
    /// The number of changes of mode.
    var modeNumber = 0
    /// The connections to engines whose earlier data has not been passed on since the mode was set.
    var behind: Set<Int32> = []
    var cut: Cut?
    /// Called before the cut is made.
    var willCut: (@Sendable () -> Void)?
    /// Called when the cut has been made, before another connection is accepted.
    var onCut: (@Sendable () -> Void)?
    var counts: [Direction: Int] = [:]
    /// Both ends of every connection, and those that lead to engines.
    var connections: Set<Int32> = []
    var clients: Set<Int32> = []
    /// The connections to engines on which nothing is passed on any more: see ``NetworkProxy/freeze()``.
    var frozen: Set<Int32> = []
    /// The connections to engines that the server has ended: see ``NetworkProxy/endServerSides()``.
    var endedByServer: Set<Int32> = []
    var mostConnections = 0
    /// The number of connections that were refused.
    var refusalCount = 0
    var isClosed = false

    /// The number of open connections of engines, including those that the server has ended. A connection that an
    /// engine has closed may still be among the clients until its thread notices.
    var connectionCount: Int { clients.count { !NetworkSocket.isEndedByPeer($0) } }

    var isUnreachable: Bool { if case .unreachable = mode { true } else { false } }
    /// Whether no connections are allowed.
    var isCutOff: Bool { if case .away = mode { true } else { isUnreachable } }
  }

  /// The port at which engines reach the proxy.
  let port: UInt16
  private let listener: Int32
  private let state: MutexProtected<State>
  /// Locked while the connections are cut.
  private let cutting = NSLock()
  /// Locked while a connection is accepted.
  private let taking = NSLock()

  /// - Throws: `StorageError` if no port or thread is available.
  init(to server: ConformanceServer.Address) throws {
    state = MutexProtected(State(server: server))
    (listener, port) = try NetworkSocket.listen()
    Thread.detachNewThread { [self] in accept() }
  }

  /// Ends all connections and stops listening. Must be called when the proxy is no longer needed.
  func close() {
    state.withLock { $0.isClosed = true }
    set(.open)
    endConnections()
    // Wakes the accepting thread, which closes the socket.
    if let own = try? NetworkSocket.connect(to: .loopback(port: port)) { NetworkSocket.close(own) }
  }

  // MARK: Faults

  /// Redirects new connections to another server.
  func target(_ server: ConformanceServer.Address) { state.withLock { $0.server = server } }

  func set(_ mode: Mode) {
    state.withLock { $0.backlog.take() }?.end()
    let (isCutOff, isUnreachable) = taking.withLock {
      state.withLock { state in
        state.mode = mode
        state.allowance = if case .stalling(let bytes) = mode { bytes } else { .max }
        state.modeNumber += 1
        state.behind = state.clients.subtracting(state.endedByServer)
        return (state.isCutOff, state.isUnreachable)
      }
    }
    if isCutOff { endConnections() }
    guard isUnreachable else { return }
    let backlog = FullBacklog(of: listener, at: port)
    state.withLock { $0.backlog = backlog }
  }

  /// Whether every connection that existed when the mode was set has ended, or has passed on the data sent before that.
  var hasPassedOn: Bool { state.withLock { $0.behind.isEmpty } }

  /// Whether data from an engine is held back.
  var isHoldingBack: Bool { heldBackCount > 0 }

  /// The number of connections on which data from an engine is held back.
  var heldBackCount: Int {
    state.withLock { state in
      state.clients.count { NetworkSocket.hasInput($0) && !NetworkSocket.isEndedByPeer($0) }
    }
  }

  /// Cuts once: calls `willCut`, passes the last bytes on, ends all connections, and calls `onCut` before any other
  /// data is passed on.
  func cut(
    after bytes: Int, _ direction: Direction, willCut: @escaping @Sendable () -> Void,
    onCut: @escaping @Sendable () -> Void
  ) {
    state.withLock { state in
      state.counts = [:]
      state.cut = Cut(direction: direction, bytes: bytes)
      (state.willCut, state.onCut) = (willCut, onCut)
    }
  }

  /// Cancels a cut that has not been made yet.
  func endCut() { state.withLock { ($0.cut, $0.willCut, $0.onCut) = (nil, nil, nil) } }

  /// The number of bytes in each direction since the last call.
  func takeCounts() -> [Direction: Int] {
    state.withLock { state in
      defer { state.counts = [:] }
      return state.counts
    }
  }

  /// The maximum number of connections at the same time.
  var mostConnections: Int { state.withLock { $0.mostConnections } }

  /// The number of connections that engines have not closed, whether or not the server has ended them.
  var connectionCount: Int { state.withLock { $0.connectionCount } }

  /// The number of connections that the proxy has refused.
  var refusalCount: Int { state.withLock { $0.refusalCount } }

  /// Ends the server's side of all existing connections, as a server would. Each remains until the engine has closed
  /// its side.
  func endServerSides() {
    state.withLock { state in
      state.endedByServer = state.clients
      state.behind = []
      for socket in state.connections.subtracting(state.clients) { NetworkSocket.shutDown(socket) }
    }
  }

  /// Passes nothing on any more on existing connections, and does not end them, as if the other side had disappeared
  /// without a message. New connections work.
  func freeze() { state.withLock { $0.frozen = $0.clients } }

  /// Ends all existing connections.
  func endConnections() {
    // While locked, because the number of a closed socket may be reused, even by other code.
    state.withLock { state in
      for socket in state.connections { NetworkSocket.shutDown(socket) }
    }
  }

  // MARK: On threads

  private func accept() {
    while let client = next() {
      cutting.withLock {}
      let (isClosed, isCutOff, server) = state.withLock { ($0.isClosed, $0.isCutOff, $0.server) }
      if isClosed {
        NetworkSocket.close(client)
        break
      }
      if refuses(client) { continue }
      // The engine may have given up a connection that waited.
      guard !isCutOff, !NetworkSocket.isEndedByPeer(client),
        let target = try? NetworkSocket.connect(to: server)
      else {
        NetworkSocket.close(client)
        continue
      }
      let isPassedOn = state.withLock { state in
        // The server may have become unreachable, or the proxy may have been closed, in the meantime.
        if state.isCutOff || state.isClosed { return false }
        state.connections.formUnion([client, target])
        state.clients.insert(client)
        state.mostConnections = max(state.mostConnections, state.connectionCount)
        return true
      }
      guard isPassedOn else {
        NetworkSocket.close(client)
        NetworkSocket.close(target)
        continue
      }
      Thread.detachNewThread { [self] in
        relay(client, target)
        state.withLock { _ = $0.connections.remove(target) }
        NetworkSocket.close(target)
        if state.withLock({ $0.endedByServer.contains(client) }) { waitForEnd(of: client) }
        end(client)
      }
    }
    NetworkSocket.close(listener)
  }

  /// Closes the proxy's side of a connection to an engine.
  private func end(_ client: Int32) {
    state.withLock { state in
      state.connections.remove(client)
      state.clients.remove(client)
      state.endedByServer.remove(client)
      state.behind.remove(client)
      state.frozen.remove(client)
    }
    NetworkSocket.close(client)
  }

  /// How many refused connections remain until the engine has closed its side, each with a thread. Later ones are
  /// closed at once.
  private static let mostRefusals = 64

  /// Ends the server's side of a new connection if the proxy is refusing. Returns whether it is.
  private func refuses(_ client: Int32) -> Bool {
    let remains = state.withLock { state -> Bool? in
      guard case .refusing = state.mode, !state.isClosed else { return nil }
      state.refusalCount += 1
      guard state.refusalCount <= Self.mostRefusals else { return false }
      state.connections.insert(client)
      state.clients.insert(client)
      state.endedByServer.insert(client)
      return true
    }
    guard let remains else { return false }
    guard remains else {
      NetworkSocket.close(client)
      return true
    }
    Thread.detachNewThread { [self] in
      waitForEnd(of: client)
      end(client)
    }
    return true
  }

  /// The next connection. None is accepted while the proxy is unreachable.
  private func next() -> Int32? {
    while true {
      var waiting = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
      guard poll(&waiting, 1, -1) > 0 else { continue }
      let (isTaken, client) = taking.withLock { () -> (Bool, Int32?) in
        state.withLock { $0.isUnreachable } ? (false, nil) : (true, NetworkSocket.accept(listener))
      }
      if isTaken { return client }
      // The full backlog keeps the listener readable, so poll() returns immediately.
      usleep(5_000)
    }
  }

  /// Passes on data until one side ends.
  private func relay(_ client: Int32, _ target: Int32) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    var nextByte = ContinuousClock.now
    while true {
      var descriptors = [client, target].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      let (mode, modeNumber, allowance, isFrozen) = state.withLock {
        ($0.mode, $0.modeNumber, $0.allowance, $0.frozen.contains(client))
      }
      let isSilent = if case .silent = mode { true } else { isFrozen || allowance <= 0 }
      if isSilent {
        // Reads nothing, so that senders only see silence.
        for index in descriptors.indices { descriptors[index].events = 0 }
      }
      let pause: Duration? = if case .trickling(let pause) = mode { pause } else { nil }
      if pause != nil, ContinuousClock.now < nextByte { descriptors[1].events = 0 }
      // The timeout makes it notice a change of mode.
      let ready = poll(&descriptors, 2, 20)
      guard ready >= 0 || errno == EINTR else { return }
      var hasPassedOn = ready >= 0 && descriptors[0].events != 0
      for (index, descriptor) in descriptors.enumerated() where descriptor.revents != 0 {
        if isSilent { return }
        let direction: Direction = index == 0 ? .toServer : .toEngine
        var limit = buffer.count
        if case .dripping = mode { limit = 1 }
        if direction == .toEngine { limit = min(limit, allowance) }
        if direction == .toEngine, let pause { (limit, nextByte) = (1, .now + pause) }
        let count = NetworkSocket.receive(descriptor.fd, &buffer, limit)
        if direction == .toEngine, count > 0 { state.withLock { $0.allowance -= count } }
        guard count > 0, pass(buffer[..<count], direction, to: index == 0 ? target : client) else { return }
        // There may be more data.
        if index == 0, count == limit { hasPassedOn = false }
      }
      guard hasPassedOn else { continue }
      state.withLock { state in
        guard state.modeNumber == modeNumber else { return }
        state.behind.remove(client)
      }
    }
  }

  /// Ends the server's side, and waits until the engine ends its side. Discards data that the engine sends until then.
  private func waitForEnd(of client: Int32) {
    NetworkSocket.endSending(client)
    var buffer = [UInt8](repeating: 0, count: 4_096)
    let size = buffer.count
    while NetworkSocket.receive(client, &buffer, size) > 0 {}
  }

  /// Returns whether the connection continues.
  private func pass(_ bytes: ArraySlice<UInt8>, _ direction: Direction, to socket: Int32) -> Bool {
    let (passed, onCut) = state.withLock { state -> (Int, (@Sendable () -> Void)?) in
      let before = state.counts[direction, default: 0]
      guard let cut = state.cut, cut.direction == direction, before + bytes.count >= cut.bytes else {
        state.counts[direction] = before + bytes.count
        return (bytes.count, nil)
      }
      defer { (state.cut, state.willCut, state.onCut) = (nil, nil, nil) }
      cutting.lock()
      state.willCut?()
      return (max(0, cut.bytes - before), state.onCut)
    }
    let isSent = NetworkSocket.send(bytes.prefix(passed), to: socket)
    guard let onCut else { return isSent }
    defer { cutting.unlock() }
    endConnections()
    onCut()
    return false
  }
}
