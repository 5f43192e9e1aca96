import Foundation
import Synchronization

/// A subscriber that applies the events of its stream and stores the resulting notes only.
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

  private final class Inbox: Sendable {
    struct State {
      var texts: [String: String] = [:]
      var failure: (any Error)?
      var wanted: (id: String, continuation: CheckedContinuation<Void, any Error>)?
    }

    let state = Mutex(State())

    func receive(_ events: [ServerEvent]?) {
      change { state in
        guard let events else { return state.failure = state.failure ?? EventReader.Ended() }
        do {
          for event in events where event.name == "notes" {
            let message = try JSONDecoder().decode(Message.self, from: Data(event.data.utf8))
            if message.all == true { state.texts = [:] }
            for note in message.notes { state.texts[note.id] = note.text }
            for id in message.removed ?? [] { state.texts[id] = nil }
          }
        } catch {
          state.failure = error
        }
      }
    }

    /// Changes the state, and resumes the waiting task if its condition holds.
    func change(_ change: (inout State) -> Void) {
      state.withLock { state in
        change(&state)
        guard let wanted = state.wanted else { return }
        if let failure = state.failure {
          wanted.continuation.resume(throwing: failure)
        } else if state.texts[wanted.id] != nil {
          wanted.continuation.resume()
        } else {
          return
        }
        state.wanted = nil
      }
    }
  }

  private let inbox = Inbox()
  private let socket: EventSocket

  init(_ server: LiveServer) throws {
    socket = try EventSocket(server, "/events?panel=notes") { [inbox] events in inbox.receive(events) }
  }

  /// Waits until the note has arrived. Throws if the stream ends or cannot be decoded before.
  func waitUntil(_ id: String) async throws {
    try await withCheckedThrowingContinuation { continuation in
      inbox.change { $0.wanted = (id, continuation) }
    }
  }

  /// The text of each note by its identifier.
  var texts: [String: String] { inbox.state.withLock { $0.texts } }
}
