import Foundation
import NIOCore
import Observation
import Stockroom

/// What a list of notes shows at first, or what changes in it.
struct NotesMessage: Encodable, Sendable {
  /// Whether these are all notes. What the list has shown before is gone then.
  var all: Bool?
  var notes: [Note] = []
  /// Those that are not in the list any more.
  var removed: [UUID]?
}

/// The views: each says what its panel shows, and publishes what changes.
///
/// They ask controllers and have no data of their own. Two of them follow the store's events, since lists are long and changes
/// are short; the third one follows what it has read, by observation.
@MainActor
final class Panels {
  private let notes: NotesController
  private let favourites: FavouritesController
  let feed: EventFeed
  private var snapshots: [PanelName: (number: Int, bytes: Task<ByteBuffer, any Error>)] = [:]

  /// Changes that come within this time are one message.
  private static let interval = Duration.milliseconds(25)

  init(_ notes: NotesController, _ favourites: FavouritesController, feed: EventFeed) {
    (self.notes, self.favourites, self.feed) = (notes, favourites, feed)
  }

  /// Publishes what changes, until it is cancelled.
  func run() async throws {
    try await withThrowingTaskGroup { group in
      group.addTask { try await self.follow(self.notes.events, as: .notes) { _ in true } }
      group.addTask { try await self.follow(self.favourites.events, as: .favourites, where: \.isFavourite) }
      group.addTask { try await self.followCounts() }
      try await group.waitForAll()
    }
  }

  // MARK: Snapshots

  /// What a panel shows now, as an event, and the number of the last change that is in it. Encoded once for all who ask before the
  /// next change.
  func snapshot(of panel: PanelName) async throws -> (number: Int, bytes: ByteBuffer) {
    let number = feed.last
    if let snapshot = snapshots[panel], snapshot.number == number {
      return (number, try await snapshot.bytes.value)
    }
    let id = feed.eventID(number)
    let task =
      switch panel {
      case .notes: encode(NotesMessage(all: true, notes: notes.notes), panel, id)
      case .favourites: encode(NotesMessage(all: true, notes: favourites.favourites), panel, id)
      case .counter: encode(notes.counts, panel, id)
      }
    snapshots[panel] = (number, task)
    return (number, try await task.value)
  }

  private func encode(
    _ message: some Encodable & Sendable, _ panel: PanelName, _ id: String
  ) -> Task<ByteBuffer, any Error> {
    Task { @concurrent in EventFeed.event(panel.rawValue, id: id, try JSONEncoder().encode(message)) }
  }

  // MARK: Changes

  private func follow(
    _ events: AsyncStream<StoreEvent<Note>>, as panel: PanelName,
    where isShown: @escaping @Sendable (Note) -> Bool
  ) async throws {
    let changes = PendingChanges(isShown)
    try await withThrowingTaskGroup { group in
      group.addTask {
        for await event in events { await changes.add(event) }
        await changes.finish()
      }
      group.addTask { @concurrent in
        while let message = await changes.take() {
          self.feed.publish(panel, try JSONEncoder().encode(message))
          try await Task.sleep(for: Self.interval)
        }
      }
      try await group.waitForAll()
    }
  }

  private func followCounts() async throws {
    for await counts in Observations({ self.notes.counts }) {
      feed.publish(.counter, try JSONEncoder().encode(counts))
      try await Task.sleep(for: Self.interval)
    }
  }
}

/// What has changed in a list since it was last published: for each note, what it is now.
@MainActor
private final class PendingChanges {
  private let isShown: @Sendable (Note) -> Bool
  private var isAll = false
  private var changed: [UUID: Note?] = [:]
  private var order: [UUID] = []
  /// What is in the list.
  private var shown: Set<UUID> = []
  private var waiting: CheckedContinuation<Void, Never>?
  private var isFinished = false

  init(_ isShown: @escaping @Sendable (Note) -> Bool) { self.isShown = isShown }

  func add(_ event: StoreEvent<Note>) {
    switch event.operation {
    case .initialized: return
    case .loaded: (isAll, changed, order, shown) = (true, [:], [], [])
    case .insert, .remove: break
    }
    for note in event.items {
      let isThere = event.operation != .remove && isShown(note)
      if isThere { shown.insert(note.id) } else if shown.remove(note.id) == nil { continue }
      if changed[note.id] == nil { order.append(note.id) }
      changed[note.id] = .some(isThere ? note : nil)
    }
    if isAll || !order.isEmpty { wake() }
  }

  func finish() {
    isFinished = true
    wake()
  }

  /// What has changed, as soon as something has. Nil at the end.
  func take() async -> NotesMessage? {
    while order.isEmpty, !isAll, !isFinished, !Task.isCancelled {
      await withTaskCancellationHandler {
        await withCheckedContinuation { waiting = $0 }
      } onCancel: {
        Task { @MainActor in self.wake() }
      }
    }
    if order.isEmpty && !isAll { return nil }
    var message = NotesMessage(all: isAll ? true : nil)
    var removed: [UUID] = []
    for id in order {
      if let note = changed[id] ?? nil { message.notes.append(note) } else { removed.append(id) }
    }
    if !removed.isEmpty && !isAll { message.removed = removed }
    (isAll, changed, order) = (false, [:], [])
    return message
  }

  private func wake() {
    waiting?.resume()
    waiting = nil
  }
}
