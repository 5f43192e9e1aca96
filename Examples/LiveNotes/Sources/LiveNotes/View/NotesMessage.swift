import Foundation

/// The content of a list of notes, or a change to it.
struct NotesMessage: Encodable, Sendable {
  /// Whether these notes replace all notes of the list.
  var all: Bool?
  var notes: [Note] = []
  /// The notes that are no longer in the list.
  var removed: [UUID]?

  /// The maximum number of notes in one event, and of bytes of their texts and tags if there are several.
  private static let sliceLimit = (notes: 250, bytes: 64 << 10)

  /// The same in messages of limited size, so that a page on a slow connection receives events without long gaps, which
  /// would make it reconnect.
  func slices() -> [NotesMessage] {
    var slices: [NotesMessage] = []
    var slice = NotesMessage(all: all)
    var byteCount = 0
    for note in notes {
      let size = note.tags.reduce(note.text.utf8.count) { $0 + $1.utf8.count }
      if slice.notes.count == Self.sliceLimit.notes
        || !slice.notes.isEmpty && byteCount + size > Self.sliceLimit.bytes
      {
        slices.append(slice)
        (slice, byteCount) = (NotesMessage(), 0)
      }
      slice.notes.append(note)
      byteCount += size
    }
    let removed = removed ?? []
    if !slice.notes.isEmpty || slice.all == true || removed.isEmpty { slices.append(slice) }
    for start in stride(from: 0, to: removed.count, by: Self.sliceLimit.notes) {
      let end = min(removed.count, start + Self.sliceLimit.notes)
      slices.append(NotesMessage(removed: Array(removed[start..<end])))
    }
    return slices
  }
}
