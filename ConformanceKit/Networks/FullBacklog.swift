import StockroomCore

/// Fills the queue of connections that wait until a listening socket takes them. From then on nobody who connects gets an answer, as from
/// a host that is gone: connecting takes as long as the system tries, which may be minutes.
struct FullBacklog: Sendable {
  private let listener: Int32
  private let sockets: [Int32]

  /// The most connections that it takes to fill the shortest queue, on whichever system.
  private static let mostSockets = 8

  /// Fills the queue of a socket that takes none meanwhile.
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
