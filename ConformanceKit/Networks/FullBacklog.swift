import StockroomCore

/// Fills the backlog of a listening socket. From then on, connection attempts get no answer, as from a host that is
/// down: connecting takes until the system gives up, which may be minutes.
struct FullBacklog: Sendable {
  private let listener: Int32
  private let sockets: [Int32]

  /// The number of connections that fills the shortest backlog on any system.
  private static let mostSockets = 8

  /// Fills the backlog of a socket that accepts no connections meanwhile.
  init(of listener: Int32, at port: UInt16) {
    self.listener = listener
    NetworkSocket.setBacklog(1, of: listener)
    var sockets: [Int32] = []
    // If no socket can be created, engines see a silent server instead. The check may then miss faults, but reports no
    // false ones.
    while sockets.count < Self.mostSockets, let socket = try? NetworkSocket.beginConnecting(to: port) {
      sockets.append(socket)
      let end = ContinuousClock.now + .milliseconds(100)
      let isQueued = try? NetworkSocket.finishConnecting(socket) { ContinuousClock.now < end }
      if isQueued != true { break }
    }
    self.sockets = sockets
  }

  /// Closes the connections in the queue.
  func end() {
    for socket in sockets { NetworkSocket.close(socket) }
    NetworkSocket.setBacklog(NetworkSocket.backlog, of: listener)
  }
}
