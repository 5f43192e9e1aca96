import Foundation
import NIOCore

/// The list of all notes as JSON. Encoded once for all requests before the next change.
@MainActor
final class NoteList {
  private struct Body: Encodable {
    let notes: [Note]
  }

  private let notes: NotesController
  private var latest: (notes: [Note], bytes: Task<ByteBuffer, any Error>)?

  init(_ notes: NotesController) { self.notes = notes }

  /// The bytes, which all answers share.
  func bytes() async throws -> ByteBuffer {
    let notes = notes.notes
    if let latest, latest.notes == notes { return try await latest.bytes.value }
    let task = Task { @concurrent in ByteBuffer(bytes: try JSONEncoder().encode(Body(notes: notes))) }
    latest = (notes, task)
    return try await task.value
  }
}
