import Foundation

/// A note. The model depends neither on the store nor on the views.
struct Note: Codable, Sendable, Equatable, Identifiable {
  let id: UUID
  var text: String
  var tags: [String] = []
  var isFavourite = false
  var isDone = false
  /// The time of creation, in microseconds since 1970. Notes are shown in this order, and in that of their identifiers
  /// if the times are equal.
  var created: Int

  private enum CodingKeys: String, CodingKey {
    case id, text, tags, created
    case isFavourite = "favourite"
    case isDone = "done"
  }
}

/// The body of a request that adds a note.
struct NoteDraft: Codable, Sendable {
  /// Chosen by the page, so that retrying a request adds no second note.
  var id: UUID?
  var text: String
  var tags: [String]?
}

/// The body of a request that changes a note. Nil leaves a property unchanged.
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

/// The numbers of notes of each kind.
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
