import Foundation
import Observation
import Stockroom
import TestFixtures
import Testing

// Code that was written for other stores. It differs only in `try` where a call can fail.

struct Message: Codable, Sendable, Identifiable, Equatable {
  let id: String
  let text: String
  let createdAt: Date
}

struct Photo: Codable, Sendable, Identifiable, Equatable {
  let id: UUID
  let url: URL
}

struct Bookmark: Codable, Sendable, Equatable {
  let url: URL
  let title: String
}

extension Store where Item == Message {
  static let messagesStore = Store<Message>(
    storage: SQLiteStorageEngine.default(appendingPath: "Messages")
  )
}

extension Store where Item == Photo {
  static let photosStore = Store<Photo>(
    storage: SQLiteStorageEngine.default(appendingPath: "Photos")
  )
}

private func message(_ id: String, _ text: String = "") -> Message {
  Message(id: id, text: text, createdAt: Date(timeIntervalSinceReferenceDate: 1_000))
}

@MainActor @Suite("Source compatibility: stores") struct SourceCompatibilityStoreTests {
  @Test("The shortest form, for items with a String for their id", arguments: Place.names)
  func shortest(_ name: String) async throws {
    let place = try Place(name)
    let store = try await Store<Message>(
      storage: place.engine()
    )
    try await store.insert(message("1"))
    #expect(store.items.map(\.id) == ["1"])
  }

  @Test("The same for items with a UUID", arguments: Place.names)
  func withUUID(_ name: String) async throws {
    let place = try Place(name)
    let store = try await Store<Photo>(
      storage: place.engine()
    )
    let photo = Photo(id: UUID(), url: URL(filePath: "/red-panda.png"))
    try await store.insert([photo, photo])
    #expect(store.items == [photo])
  }

  @Test("A store with a key path as identifier", arguments: Place.names)
  func customIdentifier(_ name: String) async throws {
    let place = try Place(name)
    let store = try await Store<Bookmark>(
      storage: place.engine(),
      cacheIdentifier: \.url.absoluteString
    )
    let url = try #require(URL(string: "https://www.redpanda.club"))
    try await store.insert(Bookmark(url: url, title: "Pandas"))
    try await store.insert(Bookmark(url: url, title: "Red pandas"))
    #expect(store.items == [Bookmark(url: url, title: "Red pandas")])
  }

  @Test("A directory of one's own choice")
  func customDirectory() async throws {
    let path = "stockroom-\(UUID().uuidString)"
    let store = try await Store<Message>(
      storage: SQLiteStorageEngine(directory: .temporary(appendingPath: path))
    )
    try await store.insert(message("1"))
    let directory = FileManager.Directory.temporary(appendingPath: path).url
    #expect(FileManager.default.fileExists(atPath: directory.path(percentEncoded: false)))
    try FileManager.default.removeItem(at: directory)
  }

  @Test("Waiting for the items of a store that loads in the background", arguments: Place.names)
  func waiting(_ name: String) async throws {
    let place = try Place(name)
    let engine = try await place.engine()
    try await Store<Message>(storage: engine).insert(message("1"))

    let store = Store<Message>(
      loadingInBackground: engine
    )

    // Later, when the items are needed:
    try await store.itemsHaveLoaded()
    let messages = store.items
    #expect(messages.count == 1)
  }

  @Test("Inserting, removing and reading", arguments: Place.names)
  func changing(_ name: String) async throws {
    let place = try Place(name)
    let store = try await Store<Message>(storage: place.engine())
    let (note, note1, note2) = (message("0"), message("1"), message("2"))

    // Single item
    try await store.insert(note)

    // Multiple items
    try await store.insert([note1, note2, note1])
    #expect(store.items == [note, note1, note2])

    // Single item
    try await store.remove(note)
    #expect(store.items == [note1, note2])

    // Multiple items
    try await store.remove([note1, note2])
    #expect(store.items.isEmpty)

    // All items
    try await store.insert(note)
    try await store.removeAll()

    let allNotes = store.items  // [Message]
    #expect(allNotes == [])
  }

  @Test("Chains", arguments: Place.names)
  func chaining(_ name: String) async throws {
    let place = try Place(name)
    let store = try await Store<Message>(storage: place.engine())
    let freshNotes = [message("2"), message("3")]
    let (outdatedNote, updatedNote) = (message("2"), message("4"))
    try await store.insert(message("1"))

    // Clear stale cache and insert fresh data
    try await store
      .removeAll()
      .insert(freshNotes)
      .run()
    #expect(store.items == freshNotes)

    // Remove specific items and insert new ones
    try await store
      .remove(outdatedNote)
      .insert(updatedNote)
      .run()
    #expect(store.items.map(\.id) == ["3", "4"])

    // Made but not yet run: nothing happens.
    let chain = try await store.removeAll().insert(freshNotes)
    #expect(store.items.map(\.id) == ["3", "4"])
    try await chain.run()
    #expect(store.items == freshNotes)
  }

  @Test("Observing events", arguments: Place.names)
  func monitoring(_ name: String) async throws {
    let place = try Place(name)
    let messagesController = MessagesController(
      store: Store<Message>(loadingInBackground: try await place.engine()))
    var log: [String] = []

    func monitorMessagesEvents() async {
      for await event in messagesController.$notes.events {
        switch event.operation {
        case .initialized:
          log.append("Store initialized")

        case .loaded:
          log.append("Loaded \(event.items.count) notes from disk")

        case .insert:
          log.append("Inserted notes: \(event.items.map(\.id))")

        case .remove:
          log.append("Removed notes: \(event.items.map(\.id))")
          return
        }
      }
    }

    let changes = Task {
      try await messagesController.addNote(message("1"))
      try await messagesController.clearAllNotes()
    }
    await monitorMessagesEvents()
    try await changes.value
    #expect(
      log.suffix(3) == ["Loaded 0 notes from disk", "Inserted notes: [\"1\"]", "Removed notes: [\"1\"]"])
  }

  @Test("A controller with an injected store compiles and works", arguments: Place.names)
  func controller(_ name: String) async throws {
    let place = try Place(name)
    let engine = try await place.engine()
    let controller = MessagesController(store: try await Store<Message>(storage: engine))
    try await controller.fetchNotes()
    try await controller.addNote(message("3"))
    #expect(controller.notes.contains(where: { $0.id == "3" }))
    try await controller.removeNote(message("1"))
    #expect(controller.notes.map(\.id) == ["2", "3"])
    try await controller.refreshNotes()
    #expect(controller.notes.map(\.id) == ["1", "2"])
    try await controller.clearAllNotes()
    #expect(controller.notes.isEmpty)
    #expect(try await engine.keyCount() == 0)
  }

  @Test("Many stores that are static members, and stores that name no engine", .ownThreads)
  func staticStores() async {
    await #expect(processExitsWith: .success) {
      try await withOwnDataDirectory { try await SourceCompatibilityStoreTests.useDefaultPlaces() }
    }
  }

  static func useDefaultPlaces() async throws {
    let controller = MessagesController(store: .messagesStore)
    try await controller.addNote(message("1"))
    try #require(controller.notes.count == 1)
    try await Store.photosStore.insert(Photo(id: UUID(), url: URL(filePath: "/1.png")))
    try #require(try await SQLiteStorageEngine.default(appendingPath: "Messages").keyCount() == 1)

    // The forms that default to SQLite: each type of item has a place of its own.
    struct Animal: Codable, Sendable { var id: String }
    struct Plant: Codable, Sendable, Identifiable { var id: String }
    struct Stone: Codable, Sendable, Identifiable { var id: UUID }
    func makeAnimalsStore() -> Store<Animal> {
      let animalsStore = Store<Animal>(cacheIdentifier: \.id)
      return animalsStore
    }
    func makeOthers() -> (Store<Plant>, Store<Stone>) { (Store(), Store()) }
    try await makeAnimalsStore().insert(Animal(id: "1"))
    try await makeOthers().0.insert([Plant(id: "1"), Plant(id: "2")])
    try await makeOthers().1.insert(Stone(id: UUID()))
    try #require(try await Store<Animal>(cacheIdentifier: \.id).items.count == 1)
    let plants = try await Store<Plant>()
    try #require(plants.items.map(\.id) == ["1", "2"])
    try await plants.removeAll()
    try #require(try await Store<Animal>(cacheIdentifier: \.id).items.count == 1)
    try #require(try await Store<Stone>().items.count == 1)
  }

  #if DEBUG
    @Test("A preview")
    func preview() {
      let store = Store<Message>.previewStore(items: [
        message("1", "Preview note")
      ])
      #expect(MessagesController(store: store).notes.map(\.text) == ["Preview note"])
    }
  #endif
}

@MainActor @Observable
final class MessagesController {
  @ObservationIgnored
  @Stored var notes: [Message]

  init(store: Store<Message>) {
    self._notes = Stored(in: store)
  }

  func fetchNotes() async throws {
    let notes = try await self.fetchNotesFromServer()
    try await self.$notes.insert(notes)
  }

  func refreshNotes() async throws {
    let freshNotes = try await self.fetchNotesFromServer()
    try await self.$notes
      .removeAll()
      .insert(freshNotes)
      .run()
  }

  func addNote(_ note: Message) async throws {
    try await self.$notes.insert(note)
  }

  func removeNote(_ note: Message) async throws {
    try await self.$notes.remove(note)
  }

  func clearAllNotes() async throws {
    try await self.$notes.removeAll()
  }

  private func fetchNotesFromServer() async throws -> [Message] { [message("1"), message("2")] }
}
