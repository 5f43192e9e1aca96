import Foundation

/// A note. The model knows nothing of where it is kept and who shows it.
struct Note: Codable, Sendable, Equatable, Identifiable {
  let id: UUID
  var text: String
  var tags: [String] = []
  var isFavourite = false
  var isDone = false
  /// When it was made, in microseconds since 1970. Notes are shown in this order; of two with the same time, by their identifier.
  var created: Int

  private enum CodingKeys: String, CodingKey {
    case id, text, tags, created
    case isFavourite = "favourite"
    case isDone = "done"
  }
}

/// What somebody wants a new note to be.
struct NoteDraft: Codable, Sendable {
  /// Chosen by the page, so that sending a draft again makes no second note.
  var id: UUID?
  var text: String
  var tags: [String]?
}

/// What is to become of a note. What is nil stays as it is.
struct NoteChange: Codable, Sendable {
  var text: String?
  var tags: [String]?
  var favourite: Bool?
  var done: Bool?

  func apply(to note: inout Note) {
    if let text { note.text = text }
    if let tags { note.tags = tags }
    if let favourite { note.isFavourite = favourite }
    if let done { note.isDone = done }
  }
}

/// How many notes there are, and of which kinds.
struct NoteCounts: Codable, Sendable, Equatable {
  var all = 0
  var done = 0
  var favourite = 0

  init(of notes: [Note]) {
    all = notes.count
    for note in notes {
      if note.isDone { done += 1 }
      if note.isFavourite { favourite += 1 }
    }
  }
}
