import Foundation
import Observation
import Stockroom

/// What views and the page may do with notes, and what they can see of them.
///
/// It has no copy of anything: what it shows is what the store has.
@MainActor @Observable
final class NotesController {
  @ObservationIgnored @Stored var notes: [Note]
  /// What was removed lately, to be put back.
  @ObservationIgnored private var removed: [(token: UUID, notes: [Note])] = []
  /// The drafts with an identifier that are on their way.
  @ObservationIgnored private var adding: [UUID: Task<Note, any Error>] = [:]
  /// How many removals can be undone.
  static let undoLimit = 20

  init(store: Store<Note>) { _notes = Stored(in: store) }

  var counts: NoteCounts { NoteCounts(of: notes) }

  /// What changes among them.
  var events: AsyncStream<StoreEvent<Note>> { $notes.events }

  /// Adds a note. A draft that comes once more, with the same identifier, adds nothing: the note is returned as it is now.
  func add(_ draft: NoteDraft) async throws -> Note {
    let draft = try draft.validated()
    guard let id = draft.id else { return try await insert(draft) }
    if let task = adding[id] { return try await task.value }
    let task = Task {
      if let note = try await stored(id) { return note }
      return try await insert(draft)
    }
    adding[id] = task
    defer { adding[id] = nil }
    return try await task.value
  }

  /// The note as it is in the engine, where another server may have changed it.
  private func stored(_ id: UUID) async throws -> Note? { try await $notes.update(id.uuidString) { _ in } }

  /// Those of the notes that are in the engine, as they are there.
  private func stored(_ ids: [UUID]) async throws -> [Note] {
    try await withThrowingTaskGroup(of: (index: Int, note: Note?).self) { group in
      for (index, id) in ids.enumerated() {
        group.addTask { (index, try await self.stored(id)) }
      }
      var found = [Note?](repeating: nil, count: ids.count)
      for try await result in group { found[result.index] = result.note }
      return found.compactMap { $0 }
    }
  }

  private func insert(_ draft: NoteDraft) async throws -> Note {
    let note = Note(
      id: draft.id ?? UUID(), text: draft.text, tags: draft.tags ?? [],
      created: Int(Date().timeIntervalSince1970 * 1_000_000))
    try await $notes.insert(note)
    return note
  }

  /// Changes a note, and loses no change that is made at the same time. Returns nil if there is none.
  func change(_ id: UUID, _ change: NoteChange) async throws -> Note? {
    let change = try change.validated()
    return try await $notes.update(id.uuidString) { change.apply(to: &$0) }
  }

  /// Removes a note. Returns by what that can be undone, or nil if there is none.
  func remove(_ id: UUID) async throws -> UUID? {
    guard let note = try await stored(id) else { return nil }
    try await $notes.remove(note)
    return remember([note])
  }

  /// Removes the notes that are done, or all. Returns by what that can be undone, nil if there were none, and how many there were.
  func clear(onlyDone: Bool) async throws -> (token: UUID?, count: Int) {
    // Those that are seen here, and none that somebody adds meanwhile.
    let seen = onlyDone ? notes.filter(\.isDone) : notes
    // Another server may have changed them, which is not seen here yet.
    let cleared = try await stored(seen.map(\.id)).filter { !onlyDone || $0.isDone }
    if cleared.isEmpty { return (nil, 0) }
    try await $notes.remove(cleared)
    return (remember(cleared), cleared.count)
  }

  /// Puts back what was removed. Returns how many notes that are, or nil if it is not known any more.
  func undo(_ token: UUID) async throws -> Int? {
    guard let index = removed.firstIndex(where: { $0.token == token }) else { return nil }
    // Nobody else undoes it at the same time.
    let removal = removed.remove(at: index)
    do {
      // What somebody has put back meanwhile stays as it is.
      let present = Set(try await stored(removal.notes.map(\.id)).map(\.id))
      let missing = removal.notes.filter { !present.contains($0.id) }
      try await $notes.insert(missing)
      return missing.count
    } catch {
      removed.append(removal)
      throw error
    }
  }

  private func remember(_ notes: [Note]) -> UUID {
    let token = UUID()
    removed.append((token, notes))
    if removed.count > Self.undoLimit { removed.removeFirst() }
    return token
  }
}
