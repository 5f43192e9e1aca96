import Foundation
import Synchronization

/// A subscriber that keeps of its stream only what it comes to.
final class LoadReader: Sendable {
  private struct State {
    var texts: [String: String] = [:]
    var isOver = false
    var wanted: (text: String, continuation: CheckedContinuation<Void, Never>)?
  }

  private struct Message: Decodable {
    struct Note: Decodable {
      let id: String
      let text: String
    }
    let all: Bool?
    let notes: [Note]
    let removed: [String]?
  }

  private let state = Mutex(State())
  private let socket: Int32
  /// It would end otherwise.
  private let server: LiveServer

  init(_ server: LiveServer) throws {
    self.server = server
    socket = try EventReader.connect(port: server.port)
    let request = Array("GET /events?panel=notes HTTP/1.1\r\nHost: 127.0.0.1:\(server.port)\r\n\r\n".utf8)
    guard write(socket, request, request.count) == request.count else { throw SystemFailure("Asking failed") }
    Thread.detachNewThread { [self] in readAll() }
  }

  deinit { close(socket) }

  private func readAll() {
    var parser = EventParser()
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = read(socket, &buffer, buffer.count)
      if count < 0, errno == EINTR { continue }
      if count <= 0 { break }
      for event in parser.parse(buffer[..<count]) where event.name == "notes" {
        guard let message = try? JSONDecoder().decode(Message.self, from: Data(event.data.utf8)) else {
          continue
        }
        let continuation = state.withLock { state in
          if message.all == true { state.texts = [:] }
          for note in message.notes { state.texts[note.id] = note.text }
          for id in message.removed ?? [] { state.texts[id] = nil }
          return Self.takeContinuation(&state)
        }
        continuation?.resume()
      }
      if parser.isOver { break }
    }
    let continuation = state.withLock { state in
      state.isOver = true
      return Self.takeContinuation(&state)
    }
    continuation?.resume()
  }

  private static func takeContinuation(_ state: inout State) -> CheckedContinuation<Void, Never>? {
    guard let wanted = state.wanted, state.isOver || state.texts[wanted.text] != nil else { return nil }
    state.wanted = nil
    return wanted.continuation
  }

  /// Waits until the note has come.
  func waitUntil(_ id: String) async throws {
    await withCheckedContinuation { continuation in
      state.withLock { state in
        state.wanted = (id, continuation)
        return Self.takeContinuation(&state)
      }?.resume()
    }
    if state.withLock({ $0.texts[id] == nil }) { throw EventReader.Ended() }
  }

  /// What the subscriber sees.
  var digest: [String: String] { state.withLock { $0.texts } }
}
