import Foundation

/// Thrown for a note that exceeds ``NoteLimits`` or has no text, with a message for the user.
struct InvalidNote: Error {
  let reason: String
}

/// The limits of a note: the UTF-16 code units of its text and of a tag, and the number of tags.
enum NoteLimits {
  static let text = 10_000
  static let tags = 20
  static let tag = 50

  /// The text without whitespace at its ends.
  static func validText(_ text: String) throws(InvalidNote) -> String {
    let text = text.trimmingCharacters(in: .whitespacesAndNewlines)
    guard !text.isEmpty else { throw InvalidNote(reason: "A note needs some text.") }
    guard text.utf16.count <= Self.text else {
      throw InvalidNote(reason: "The text of a note has at most \(Self.text) characters.")
    }
    return text
  }

  /// The tags without whitespace at their ends, each once, and without empty ones.
  static func validTags(_ tags: [String]) throws(InvalidNote) -> [String] {
    var valid: [String] = []
    for tag in tags {
      let tag = tag.trimmingCharacters(in: .whitespacesAndNewlines)
      guard tag.utf16.count <= Self.tag else {
        throw InvalidNote(reason: "A tag has at most \(Self.tag) characters.")
      }
      if tag.isEmpty || valid.contains(tag) { continue }
      // Checked in the loop, since each tag is compared with all before it.
      guard valid.count < Self.tags else {
        throw InvalidNote(reason: "A note has at most \(Self.tags) tags.")
      }
      valid.append(tag)
    }
    return valid
  }
}

extension NoteDraft {
  func validated() throws(InvalidNote) -> NoteDraft {
    NoteDraft(id: id, text: try NoteLimits.validText(text), tags: try NoteLimits.validTags(tags ?? []))
  }
}

extension NoteChange {
  func validated() throws(InvalidNote) -> NoteChange {
    var change = self
    if let text { change.text = try NoteLimits.validText(text) }
    if let tags { change.tags = try NoteLimits.validTags(tags) }
    return change
  }
}
