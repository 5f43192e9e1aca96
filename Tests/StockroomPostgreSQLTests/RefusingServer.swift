import Foundation
import StockroomCore

@testable import ConformanceKit

/// A server on a TCP port that refuses each session with the same error.
final class RefusingServer: Sendable {
  let port: UInt16
  /// An element for each refused session.
  let refusals: AsyncStream<Void>
  private let listener: Int32
  private let isClosed = MutexProtected(false)

  init(sqlState: String, message: String) throws {
    (listener, port) = try NetworkSocket.listen()
    let (refusals, continuation) = AsyncStream.makeStream(of: Void.self)
    self.refusals = refusals
    // https://www.postgresql.org/docs/15/protocol-message-formats.html, `ErrorResponse`.
    let fields = Array("SFATAL\0VFATAL\0C\(sqlState)\0M\(message)\0\0".utf8)
    let length = withUnsafeBytes(of: UInt32(fields.count + 4).bigEndian) { Array($0) }
    let answer = [UInt8(ascii: "E")] + length + fields
    Thread.detachNewThread { [self] in
      var request = [UInt8](repeating: 0, count: 4_096)
      while let client = NetworkSocket.accept(listener) {
        defer { NetworkSocket.close(client) }
        if isClosed.withLock({ $0 }) { break }
        if NetworkSocket.receive(client, &request, request.count) > 0 {
          _ = NetworkSocket.send(answer[...], to: client)
        }
        continuation.yield()
      }
      continuation.finish()
      NetworkSocket.close(listener)
    }
  }

  /// Accepts no more connections.
  func close() {
    isClosed.withLock { $0 = true }
    // Wakes up the accepting thread, which then closes the socket.
    if let own = try? NetworkSocket.connect(to: .loopback(port: port)) { NetworkSocket.close(own) }
  }
}
