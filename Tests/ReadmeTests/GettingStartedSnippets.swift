// The Swift code of GettingStarted.md, which ReadmeTests compares with the page.

import Foundation
import Observation
import Stockroom
import StockroomMemory
import StockroomTestSupport
import Testing

nonisolated struct Note: Codable, Sendable, Identifiable {
  var id = UUID()
  var text: String
}

func firstNotes() async throws {
  let notes = try await Store<Note>(storage: .sqlite(directory: .documents(appendingPath: "Notes")))

  try await notes.insert(Note(text: "Milk"))
  try await notes.insert([Note(text: "Bread"), Note(text: "Figs")])

  for note in await notes.items { print(note.text) }
}

nonisolated struct Bookmark: Codable, Sendable {
  var url: URL
  var title: String
}

func bookmarks() async throws -> Store<Bookmark> {
  try await Store(
    storage: .sqlite(directory: .documents(appendingPath: "Bookmarks")),
    cacheIdentifier: \.url.absoluteString)
}

func change(_ notes: Store<Note>, _ milk: Note, _ bread: Note) async throws {
  try await notes.insert(milk)  // behind all others, or in the place of the one with its identifier
  try await notes.remove([milk, bread])
  try await notes.removeAll()
}

func addFigs(to note: Note, in notes: Store<Note>) async throws {
  try await notes.update(note) { $0.text += ", figs" }
}

func refresh(_ notes: Store<Note>, with fresh: [Note]) async throws {
  try await notes
    .removeAll()
    .insert(fresh)
    .run()
}

@MainActor func notesInTheBackground() -> Store<Note> {
  Store(storage: SQLiteStorageEngine.default(appendingPath: "Notes"))
}

func waitForNotes(_ notes: Store<Note>) async throws {
  try await notes.itemsHaveLoaded()
}

func startQuickly() async -> Store<Note> {
  await Store(loadingInBackground: SQLiteStorageEngine.default(appendingPath: "Notes"))
}

@MainActor @Observable
final class NotesController {
  @ObservationIgnored
  @Stored var notes: [Note]

  init(store: Store<Note>) {
    self._notes = Stored(in: store)
  }

  func add(_ text: String) async throws {
    try await self.$notes.insert(Note(text: text))
  }

  func remove(_ note: Note) async throws {
    try await self.$notes.remove(note)
  }

  func clear() async throws {
    try await self.$notes.removeAll()
  }
}

extension Store where Item == Note {
  static let notesStore = Store<Note>(storage: SQLiteStorageEngine.default(appendingPath: "Notes"))
}

@MainActor @Observable
final class SearchController {
  @ObservationIgnored
  @Stored(in: .notesStore) var notes

  func search(for text: String) -> [Note] { notes.filter { $0.text.contains(text) } }
}

func log(_ notes: Store<Note>) async {
  for await event in await notes.events {
    switch event.operation {
    case .initialized: print("Not loaded yet")
    case .loaded: print("\(event.items.count) notes loaded")
    case .insert: print("Inserted:", event.items)
    case .remove: print("Removed:", event.items)
    }
  }
}

final class Settings {
  @StoredValue(key: "prefersDarkMode") var prefersDarkMode = false
  @StoredValue(key: "lastOpened") var lastOpened: Date?

  func open() throws {
    try $lastOpened.set(.now)
    try $prefersDarkMode.toggle()
  }
}

@MainActor final class Editor {
  static let shared = Editor()

  @AsyncStoredValue(storage: SQLiteStorageEngine.default(appendingPath: "Drafts"), key: "draft")
  var draft = ""

  func append(_ text: String) async throws {
    try await $draft.update { $0 += text }
  }
}

struct Profile: Codable, Sendable {
  var name: String
}

final class Profiles: Sendable {
  private let cache = PersistentCache<UUID, Profile>(namespace: "profiles")

  func profile(_ id: UUID) async throws -> Profile {
    try await cache.fetch(id, expiresIn: 60 * 60) { Profile(name: "Ada") }
  }

  func rename(_ id: UUID, to name: String) async throws {
    cache[id] = Profile(name: name)  // seen by every read from now on, written in the background
    try await cache.sync()  // written
  }
}

@MainActor func previewedController() -> NotesController {
  NotesController(store: .previewStore(items: [Note(text: "Milk")]))
}

@MainActor @Test func aFailureChangesNothing() async throws {
  let engine = FailingStorageEngine(MemoryStorageEngine())
  let controller = NotesController(store: try await Store(storage: engine))
  engine.failCall(where: \.isWrite)
  await #expect(throws: StorageError.self) { try await controller.add("Milk") }
  #expect(controller.notes.isEmpty)
}
