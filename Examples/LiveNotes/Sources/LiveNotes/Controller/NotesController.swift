import Foundation
import Observation
import Stockroom

/// What views and the page may do with notes, and what they can see of them.
///
/// It has no copy of anything: what it shows is what the store has. Whatever depends on a note reads and changes it as one step of the
/// store, since other tasks and other servers may change it at any time.
@MainActor @Observable
final class NotesController {
  /// Notes that were removed together, and by what that can be undone.
  private struct Removal {
    let token: UUID
    let notes: [Note]
  }

  @ObservationIgnored @Stored var notes: [Note]
  /// What was removed lately, to be put back. The latest is the last.
  @ObservationIgnored private var removals: [Removal] = []
  /// How many removals can be undone.
  static let undoLimit = 20

  init(store: Store<Note>) { _notes = Stored(in: store) }

  var counts: NoteCounts { NoteCounts(of: notes) }

  /// What changes among them.
  var events: AsyncStream<StoreEvent<Note>> { $notes.events }

  /// Adds a note. A draft that comes once more, with the same identifier, adds nothing: the note is returned as it is now.
  func add(_ draft: NoteDraft) async throws -> Note {
    let draft = try draft.validated()
    let note = Note(
      id: draft.id ?? UUID(), text: draft.text, tags: draft.tags ?? [],
      created: Int(Date().timeIntervalSince1970 * 1_000_000))
    return try await insertIfAbsent(note).note
  }

  /// Changes a note, and loses no change that is made at the same time. Returns nil if there is none.
  func change(_ id: UUID, _ change: NoteChange) async throws -> Note? {
    let change = try change.validated()
    return try await $notes.update(id.uuidString) { change.apply(to: &$0) }
  }

  /// Removes a note. Returns by what that can be undone, or nil if there is none.
  func remove(_ id: UUID) async throws -> UUID? {
    guard let note = try await take(id) else { return nil }
    return remember([note])
  }

  /// Removes the notes that are done, or all. Returns by what that can be undone, nil if there were none, and how many there were.
  ///
  /// If some cannot be removed, the others are, and it throws only if none is.
  func clear(onlyDone: Bool) async throws -> (token: UUID?, count: Int) {
    // Those that are seen here, and none that somebody adds meanwhile.
    let seen = onlyDone ? notes.filter(\.isDone) : notes
    let results = await forEach(seen.map(\.id)) { id in
      // Another server may have changed it, which is not seen here yet.
      try await self.take(id) { !onlyDone || $0.isDone }
    }
    var removed: [Note] = []
    var failure: (any Error)?
    for result in results {
      switch result {
      case .success(let note): if let note { removed.append(note) }
      case .failure(let error): failure = failure ?? error
      }
    }
    if removed.isEmpty {
      if let failure { throw failure }
      return (nil, 0)
    }
    return (remember(removed), removed.count)
  }

  /// Puts back what was removed, as it was then. What somebody has added again meanwhile stays as it is. Returns how many notes that are,
  /// or nil if it is not known any more.
  func undo(_ token: UUID) async throws -> Int? {
    guard let index = removals.firstIndex(where: { $0.token == token }) else { return nil }
    // Nobody else undoes it at the same time.
    let removal = removals.remove(at: index)
    do {
      let results = await forEach(removal.notes) { try await self.insertIfAbsent($0).isNew }
      return try results.map { try $0.get() }.count { $0 }
    } catch {
      // To be tried again.
      remember(removal)
      throw error
    }
  }

  // MARK: Steps

  /// Inserts a note, unless there is one with its identifier. Returns the one that is there then.
  private func insertIfAbsent(_ new: Note) async throws -> (note: Note, isNew: Bool) {
    try await $notes.modify(new.id.uuidString) { stored in
      if let stored { return (stored, false) }
      stored = new
      return (new, true)
    }
  }

  /// Removes a note, if it is one of those that are meant. Returns it as it was last.
  private func take(
    _ id: UUID, where isMeant: @escaping @Sendable (Note) -> Bool = { _ in true }
  ) async throws -> Note? {
    try await $notes.modify(id.uuidString) { stored in
      guard let note = stored, isMeant(note) else { return nil }
      stored = nil
      return note
    }
  }

  /// Makes a call for each of them, all at once, so that the store puts them into one transaction. The results are in the same order.
  private func forEach<Input: Sendable, Output: Sendable>(
    _ inputs: [Input], _ call: @escaping @Sendable (Input) async throws -> Output
  ) async -> [Result<Output, any Error>] {
    await withTaskGroup(of: (index: Int, result: Result<Output, any Error>).self) { group in
      for (index, input) in inputs.enumerated() {
        group.addTask {
          do { return (index, .success(try await call(input))) } catch { return (index, .failure(error)) }
        }
      }
      var results: [(index: Int, result: Result<Output, any Error>)] = []
      for await result in group { results.append(result) }
      return results.sorted { $0.index < $1.index }.map(\.result)
    }
  }

  // MARK: Removals

  private func remember(_ notes: [Note]) -> UUID {
    let removal = Removal(token: UUID(), notes: notes)
    remember(removal)
    return removal.token
  }

  private func remember(_ removal: Removal) {
    removals.append(removal)
    if removals.count > Self.undoLimit { removals.removeFirst() }
  }
}
