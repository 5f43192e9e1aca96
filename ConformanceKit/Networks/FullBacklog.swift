import StockroomCore

/// Fills the backlog of a listening socket. From then on, connection attempts get no answer, as from a host
/// that is down: connecting takes until the system gives up, which may be minutes.
struct FullBacklog: Sendable {
  private let listener: Int32
  private let sockets: [Int32]

  /// The maximum number of connections that it takes to fill the shortest backlog, on any system.
  private static let mostSockets = 8

  /// Fills the backlog of a socket that accepts no connections meanwhile.
  init(of listener: Int32, at port: UInt16) {
    self.listener = listener
    NetworkSocket.setBacklog(1, of: listener)
    var sockets: [Int32] = []
    // Without a socket to be had, engines would meet a server that is silent: a check may then find less, and nothing that is not there.
    while sockets.count < Self.mostSockets, let socket = try? NetworkSocket.beginConnecting(to: port) {
      sockets.append(socket)
      let end = ContinuousClock.now + .milliseconds(100)
      let isQueued = try? NetworkSocket.finishConnecting(socket) { ContinuousClock.now < end }
      if isQueued != true { break }
    }
    self.sockets = sockets
  }

  /// Leaves the queue as it was, and closes the connections in it.
  func end() {
    for socket in sockets { NetworkSocket.close(socket) }
    NetworkSocket.setBacklog(NetworkSocket.backlog, of: listener)
  }
}
