import Foundation
import Synchronization

/// A subscriber that keeps of its stream only what it comes to.
final class LoadReader: Sendable {
  private struct Message: Decodable {
    struct Note: Decodable {
      let id: String
      let text: String
    }
    let all: Bool?
    let notes: [Note]
    let removed: [String]?
  }

  /// What has come, and the socket. The thread holds this, and not the reader.
  private final class Inbox: Sendable {
    struct State {
      var texts: [String: String] = [:]
      var isOver = false
      var wanted: (id: String, continuation: CheckedContinuation<Void, Never>)?
    }

    let state = Mutex(State())
    let socket: Int32

    init(_ socket: Int32) { self.socket = socket }

    deinit { close(socket) }

    func read() {
      var parser = EventParser()
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      while !parser.isOver {
        let count = recv(socket, &buffer, buffer.count, 0)
        if count < 0, errno == EINTR { continue }
        if count <= 0 { break }
        for event in parser.parse(buffer[..<count]) where event.name == "notes" {
          // What cannot be read is missing at the end.
          guard let message = try? JSONDecoder().decode(Message.self, from: Data(event.data.utf8)) else {
            continue
          }
          change { state in
            if message.all == true { state.texts = [:] }
            for note in message.notes { state.texts[note.id] = note.text }
            for id in message.removed ?? [] { state.texts[id] = nil }
          }
        }
      }
      change { $0.isOver = true }
    }

    /// Changes the state, and goes on with whoever has waited for that.
    func change(_ change: (inout State) -> Void) {
      let continuation = state.withLock { state -> CheckedContinuation<Void, Never>? in
        change(&state)
        guard let wanted = state.wanted, state.isOver || state.texts[wanted.id] != nil else { return nil }
        state.wanted = nil
        return wanted.continuation
      }
      continuation?.resume()
    }
  }

  private let inbox: Inbox
  /// It would end otherwise.
  private let server: LiveServer

  init(_ server: LiveServer) throws {
    self.server = server
    inbox = Inbox(try connectToLoopback(port: server.port))
    let request = Array("GET /events?panel=notes HTTP/1.1\r\nHost: 127.0.0.1:\(server.port)\r\n\r\n".utf8)
    guard write(inbox.socket, request, request.count) == request.count else {
      throw SystemFailure("Asking failed")
    }
    Thread.detachNewThread { [inbox] in inbox.read() }
  }

  deinit { shutdown(inbox.socket, Int32(SHUT_RDWR)) }

  /// Waits until the note has come.
  func waitUntil(_ id: String) async throws {
    await withCheckedContinuation { continuation in inbox.change { $0.wanted = (id, continuation) } }
    if inbox.state.withLock({ $0.texts[id] == nil }) { throw EventReader.Ended() }
  }

  /// What the subscriber sees: the text of each note.
  var texts: [String: String] { inbox.state.withLock { $0.texts } }
}
