import Dispatch
import Foundation
import StockroomCore
import StockroomEngines

@testable import ConformanceKit

/// Forwards bytes between engines and a server, and can inject bytes that no server sends.
final class Relay: Sendable {
  private struct State {
    var clients: Set<Int32> = []
    var isClosed = false
    var requestCount = 0
  }

  /// The port that engines connect to.
  let port: UInt16
  private let listener: Int32
  private let server: ConformanceServer.Address
  private let state = MutexProtected(State())

  init(to server: ConformanceServer.Address) throws {
    self.server = server
    (listener, port) = try NetworkSocket.listen()
    Thread.detachNewThread { [self] in accept() }
  }

  /// Sends the bytes to every connected engine.
  func say(_ bytes: [UInt8]) {
    state.withLock { state in
      for client in state.clients { _ = NetworkSocket.send(bytes[...], to: client) }
    }
  }

  /// The number of times data arrived from engines. A large request arrives in several pieces.
  var requestCount: Int { state.withLock { $0.requestCount } }

  /// Accepts no more connections, and ends the existing ones.
  func close() {
    state.withLock { state in
      state.isClosed = true
      for client in state.clients { NetworkSocket.shutDown(client) }
    }
    // Wakes up the accepting thread, which then closes the socket.
    if let own = try? NetworkSocket.connect(to: .loopback(port: port)) { NetworkSocket.close(own) }
  }

  private func accept() {
    while let client = NetworkSocket.accept(listener) {
      guard !state.withLock({ $0.isClosed }), let target = try? NetworkSocket.connect(to: server) else {
        NetworkSocket.close(client)
        if state.withLock({ $0.isClosed }) { break }
        continue
      }
      state.withLock { _ = $0.clients.insert(client) }
      Thread.detachNewThread { [self] in
        let isOver = DispatchSemaphore(value: 0)
        Thread.detachNewThread { [self] in
          pass(from: client, to: target) { state.withLock { $0.requestCount += 1 } }
          isOver.signal()
        }
        pass(from: target, to: client) {}
        isOver.wait()
        state.withLock { _ = $0.clients.remove(client) }
        NetworkSocket.close(client)
        NetworkSocket.close(target)
      }
    }
    NetworkSocket.close(listener)
  }

  /// Forwards bytes from one side until either side ends, and calls `note` after each receive.
  private func pass(from source: Int32, to target: Int32, _ note: () -> Void) {
    let size = 65_536
    var buffer = [UInt8](repeating: 0, count: size)
    while true {
      let count = NetworkSocket.receive(source, &buffer, size)
      note()
      guard count > 0, NetworkSocket.send(buffer[..<count], to: target) else { break }
    }
    for socket in [source, target] { NetworkSocket.shutDown(socket) }
  }
}
