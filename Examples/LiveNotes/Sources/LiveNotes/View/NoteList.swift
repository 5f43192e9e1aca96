import Foundation
import NIOCore

/// The list of all notes as JSON, encoded once for all requests until the next change.
@MainActor
final class NoteList {
  private struct Body: Encodable {
    let notes: [Note]
  }

  private let notes: NotesController
  private var latest: (notes: [Note], bytes: Task<ByteBuffer, any Error>)?

  init(_ notes: NotesController) { self.notes = notes }

  /// The bytes, which all responses share.
  func bytes() async throws -> ByteBuffer {
    let notes = notes.notes
    if let latest, latest.notes == notes { return try await latest.bytes.value }
    let task = Task { @concurrent in ByteBuffer(bytes: try JSONEncoder().encode(Body(notes: notes))) }
    latest = (notes, task)
    return try await task.value
  }
}
