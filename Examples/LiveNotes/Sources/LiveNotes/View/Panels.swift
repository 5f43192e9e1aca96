import Foundation
import NIOCore
import Observation
import Stockroom

/// The views: the content of each panel, and its changes.
///
/// They read from controllers and have no notes of their own. The two lists follow the store's events, since lists are
/// long and changes are short; the counter uses observation.
@MainActor
final class Panels {
  private let notes: NotesController
  private let favourites: FavouritesController
  let feed: EventFeed
  private var snapshots: [PanelName: (number: Int, events: Task<[ByteBuffer], any Error>)] = [:]

  /// Changes within this time are combined into one message.
  private static let interval = Duration.milliseconds(25)

  init(_ notes: NotesController, _ favourites: FavouritesController, feed: EventFeed) {
    (self.notes, self.favourites, self.feed) = (notes, favourites, feed)
  }

  /// Publishes the changes of all panels, until it is cancelled.
  func run() async throws {
    try await withThrowingTaskGroup { group in
      group.addTask { try await self.follow(self.notes.events, as: .notes) { _ in true } }
      group.addTask { try await self.follow(self.favourites.events, as: .favourites, where: \.isFavourite) }
      group.addTask { try await self.followCounts() }
      try await group.waitForAll()
    }
  }

  // MARK: Snapshots

  /// The current content of a panel, as events. Encoded once for all subscribers until the next message of the feed.
  func snapshot(of panel: PanelName) async throws -> [ByteBuffer] {
    let number = feed.last
    if let snapshot = snapshots[panel], snapshot.number == number { return try await snapshot.events.value }
    let task =
      switch panel {
      case .notes: encode(notes.notes, panel)
      case .favourites: encode(favourites.favourites, panel)
      case .counter: encode(notes.counts)
      }
    snapshots[panel] = (number, task)
    return try await task.value
  }

  private func encode(_ notes: [Note], _ panel: PanelName) -> Task<[ByteBuffer], any Error> {
    Task { @concurrent in
      try NotesMessage(all: true, notes: notes).slices().map { slice in
        EventFeed.event(panel.rawValue, try JSONEncoder().encode(slice))
      }
    }
  }

  private func encode(_ counts: NoteCounts) -> Task<[ByteBuffer], any Error> {
    Task { @concurrent in [EventFeed.event(PanelName.counter.rawValue, try JSONEncoder().encode(counts))] }
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
          self.feed.publish(panel, try message.slices().map { try JSONEncoder().encode($0) })
          try await Task.sleep(for: Self.interval)
        }
      }
      try await group.waitForAll()
    }
  }

  private func followCounts() async throws {
    for await counts in Observations({ self.notes.counts }) {
      feed.publish(.counter, [try JSONEncoder().encode(counts)])
      try await Task.sleep(for: Self.interval)
    }
  }
}

/// The changes of a list that have not been published: for each changed note, its current state.
@MainActor
private final class PendingChanges {
  private let isShown: @Sendable (Note) -> Bool
  private var isAll = false
  private var changed: [UUID: Note?] = [:]
  private var order: [UUID] = []
  /// The notes in the list.
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

  /// Waits for changes, and returns and removes them. Nil after ``finish()`` or if the task is cancelled.
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
