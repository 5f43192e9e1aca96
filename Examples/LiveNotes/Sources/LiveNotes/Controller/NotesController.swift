import Foundation
import Observation
import Stockroom

/// The operations on notes, and the notes that views show.
///
/// Has no copies of stored notes. Each operation reads and writes a note in one transaction of the store, since other
/// tasks and other servers can change it at any time.
@MainActor @Observable
final class NotesController {
  /// Notes that were removed together, and the token that undoes the removal.
  private struct Removal {
    let token: UUID
    let notes: [Note]
  }

  @ObservationIgnored @Stored var notes: [Note]
  /// The last removals that can be undone, the latest at the end.
  @ObservationIgnored private var removals: [Removal] = []
  /// The maximum number of removals that can be undone.
  static let undoLimit = 20

  init(store: Store<Note>) { _notes = Stored(in: store) }

  var counts: NoteCounts { NoteCounts(of: notes) }

  /// The changes of the notes.
  var events: AsyncStream<StoreEvent<Note>> { $notes.events }

  /// Adds a note. If there is one with the identifier of the draft, nothing changes, and that note is returned, so that
  /// a client can retry.
  func add(_ draft: NoteDraft) async throws -> Note {
    let draft = try draft.validated()
    let note = Note(
      id: draft.id ?? UUID(), text: draft.text, tags: draft.tags ?? [],
      created: Int(Date().timeIntervalSince1970 * 1_000_000))
    return try await insertIfAbsent(note).note
  }

  /// Changes a note, without losing concurrent changes. Returns nil if there is no such note.
  func change(_ id: UUID, _ change: NoteChange) async throws -> Note? {
    let change = try change.validated()
    return try await $notes.update(id.uuidString) { change.apply(to: &$0) }
  }

  /// Removes a note. Returns the token that undoes the removal, or nil if there is no such note.
  func remove(_ id: UUID) async throws -> UUID? {
    guard let note = try await take(id) else { return nil }
    return remember([note])
  }

  /// Removes the notes that are done, or all. Returns the number of removed notes, and the token that undoes the
  /// removal; nil if there were none.
  ///
  /// If removing some of them fails, the others are removed. Throws only if none is.
  func clear(onlyDone: Bool) async throws -> (token: UUID?, count: Int) {
    // Only the notes that this server shows now, not those that are added meanwhile.
    let seen = onlyDone ? notes.filter(\.isDone) : notes
    let results = await forEach(seen.map(\.id)) { id in
      // In case another server has changed it already.
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

  /// Restores the notes of a removal. A note that exists again is not replaced. Returns the number of restored notes,
  /// or nil if the token is unknown.
  func undo(_ token: UUID) async throws -> Int? {
    guard let index = removals.firstIndex(where: { $0.token == token }) else { return nil }
    // Before the first suspension, so that the removal is undone only once.
    let removal = removals.remove(at: index)
    do {
      let results = await forEach(removal.notes) { try await self.insertIfAbsent($0).isNew }
      return try results.map { try $0.get() }.count { $0 }
    } catch {
      // So that it can be retried.
      remember(removal)
      throw error
    }
  }

  // MARK: Transactions

  /// Inserts a note unless there is one with its identifier. Returns the note that is stored.
  private func insertIfAbsent(_ new: Note) async throws -> (note: Note, isNew: Bool) {
    try await $notes.modify(new.id.uuidString) { stored in
      if let stored { return (stored, false) }
      stored = new
      return (new, true)
    }
  }

  /// Removes a note if it satisfies the predicate. Returns the removed note.
  private func take(
    _ id: UUID, where predicate: @escaping @Sendable (Note) -> Bool = { _ in true }
  ) async throws -> Note? {
    try await $notes.modify(id.uuidString) { stored in
      guard let note = stored, predicate(note) else { return nil }
      stored = nil
      return note
    }
  }

  /// Calls the closure for all elements concurrently, so that the store can combine the calls into batches. The results
  /// are in the order of the elements.
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
