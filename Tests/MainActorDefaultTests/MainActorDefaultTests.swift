// The examples of the documentation in a module whose default isolation is the main actor, as that of a new Xcode
// project is. Items are nonisolated, since they are encoded and decoded elsewhere.

import Foundation
import Observation
import Stockroom
import StockroomMemory
import Testing

nonisolated struct Song: Codable, Sendable, Identifiable {
  var id: String
  var title: String
}

nonisolated struct Note: Codable, Sendable, Identifiable {
  var id = UUID()
  var text: String
}

nonisolated struct Track: Codable, Sendable, Identifiable {
  var id: Int
}

nonisolated struct Bookmark: Codable, Sendable {
  var url: URL
  var title: String
}

nonisolated struct RemoteImage: Codable, Sendable, Identifiable {
  var url: URL
  var id: String { url.absoluteString }
}

nonisolated struct Profile: Codable, Sendable { var name = "" }

nonisolated struct FirstSetting: Codable, Sendable { var text = "" }

nonisolated struct Setting: VersionedItem, Identifiable {
  var id: String
  init(migrating previous: FirstSetting) { id = previous.text }
}

func keepSongs() async throws {
  let songs = try await Store<Song>(storage: .sqlite(directory: .documents(appendingPath: "Songs")))

  try await songs.insert(Song(id: "1", title: "Clair de lune"))
  try await songs.removeAll().insert([Song(id: "2", title: "La mer"), Song(id: "3", title: "Jeux")]).run()
  print(songs.items.map(\.title))
}

func bookmarks() async throws -> Store<Bookmark> {
  try await Store(
    storage: .sqlite(directory: .documents(appendingPath: "Bookmarks")),
    cacheIdentifier: \.url.absoluteString)
}

func notesInTheBackground() -> Store<Note> {
  Store(storage: SQLiteStorageEngine.default(appendingPath: "Notes"))
}

func startQuickly() async -> Store<Note> {
  Store(loadingInBackground: SQLiteStorageEngine.default(appendingPath: "Notes"))
}

extension Store where Item == Note {
  static let notesStore = Store<Note>(storage: SQLiteStorageEngine.default(appendingPath: "Notes"))
}

extension Store where Item == RemoteImage {
  static let imagesStore = Store<RemoteImage>(
    storage: SQLiteStorageEngine.default(appendingPath: "Images"), cacheIdentifier: \.id)
}

@Observable
final class NotesController {
  @ObservationIgnored
  @Stored var notes: [Note]

  init(store: Store<Note>) {
    self._notes = Stored(in: store)
  }

  func add(_ text: String) async throws {
    try await self.$notes.insert(Note(text: text))
  }
}

@Observable
final class SearchController {
  @ObservationIgnored
  @Stored(in: .notesStore) var notes

  func search(for text: String) -> [Note] { notes.filter { $0.text.contains(text) } }
}

@Observable
final class ImagesController {
  @ObservationIgnored @Stored(in: .imagesStore) var images

  func replaceAll(with images: [RemoteImage]) async throws {
    try await self.$images.removeAll().insert(images).run()
  }
}

func log(_ notes: Store<Note>) async {
  for await event in notes.events {
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

final class Editor {
  static let shared = Editor()

  @AsyncStoredValue(storage: SQLiteStorageEngine.default(appendingPath: "Drafts"), key: "draft")
  var draft = ""
  @AsyncStoredValue(storage: SQLiteStorageEngine.default(appendingPath: "Drafts"), key: "profile")
  var profile = Profile()

  func append(_ text: String) async throws {
    try await $draft.update { $0 += text }
  }

  func rename(_ name: String) async throws { try await $profile.set(\.name, to: name) }
}

func loadName(of id: UUID, from cache: PersistentCache<UUID, Profile>) async throws -> Profile {
  if let profile = try await cache[id] { return profile }
  cache[id] = Profile(name: "Ada")
  return try await cache.fetch(id) { Profile(name: "Ada") }
}

func keepPanda(in engine: some StorageEngine) async throws -> RemoteImage? {
  let storage = ObjectStorage<RemoteImage>(storage: engine)
  try await storage.store(RemoteImage(url: URL(filePath: "/panda.png")), forKey: CacheKey("panda"))
  return try await storage.object(forKey: CacheKey("panda"))
}

@Suite struct MainActorDefaultTests {
  @Test("A store works in a module whose default isolation is the main actor")
  func store() async throws {
    let controller = NotesController(store: try await Store(storage: .memory()))
    try await controller.add("Milk")
    #expect(controller.notes.map(\.text) == ["Milk"])
    let tracks = try await Store<Track>(storage: .memory())
    try await tracks.insert([Track(id: 1), Track(id: 2)])
    #expect(tracks.items.map(\.id) == [1, 2])
    #expect(try await keepPanda(in: .memory()) != nil)
  }

  @Test("Items have versions in such a module")
  func versions() async throws {
    let engine = MemoryStorageEngine()
    let key = CacheKey(verbatim: "a")
    try await ObjectStorage<FirstSetting>(storage: engine).store(FirstSetting(text: "a"), forKey: key)
    let settings = try await Store<Setting>(storage: engine)
    settings.startRewritingOldVersions()
    try await settings.oldVersionsHaveBeenRewritten()
    #expect(settings.items.map(\.id) == ["a"])
    #expect(try await engine.read(key: key)?.first == 0xFF)
  }
}
