import Foundation
import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@MainActor @Suite("A store") struct StoreTests {
  @Test(
    "Items are inserted, replaced in place and removed, and are still there after reopening",
    arguments: AnyEngine.all)
  func changes(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    let store = try await Store<Note>(storage: engine)
    #expect(store.items.isEmpty)

    try await store.insert(Note(id: "a", text: "1"))
    try await store.insert([Note(id: "b"), Note(id: "c"), Note(id: "d")])
    try await store.insert(Note(id: "a", text: "2"))
    #expect(store.items.map(\.id) == ["a", "b", "c", "d"])
    #expect(store.items.first?.text == "2")
    #expect(try await agree(store, engine))

    try await store.remove(Note(id: "b"))
    try await store.remove([Note(id: "d"), Note(id: "nobody")])
    try await store.insert(Note(id: "b"))
    #expect(store.items.map(\.id) == ["a", "c", "b"])
    #expect(try await agree(store, engine))

    try await store.removeAll()
    #expect(store.items.isEmpty)
    #expect(try await agree(store, engine))
    try await store.insert(Note(id: "again"))
    #expect(try await agree(store, engine))
    try await engine.close()
  }

  @Test("For two items with one identifier in a call, the later one is kept, at the position of the first")
  func twice() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    try await store.insert([Note(id: "a", text: "1"), Note(id: "b"), Note(id: "a", text: "2")])
    #expect(store.items == [Note(id: "a", text: "2"), Note(id: "b")])
    #expect(try await agree(store, engine))
  }

  @Test("The stored bytes are the JSON of the item, under its identifier")
  func bytes() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note(id: "a", text: "é"))
    let data = try #require(try await engine.read(key: CacheKey(verbatim: "a")))
    #expect(try JSONDecoder().decode(Note.self, from: data) == Note(id: "a", text: "é"))
    let object = try #require(try JSONSerialization.jsonObject(with: data) as? [String: String])
    #expect(object == ["id": "a", "text": "é"])
  }

  @Test("Another codec stores different bytes")
  func codec() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine, codec: PropertyListCodec())
    try await store.insert(Note.numbered(0..<100))
    let data = try #require(try await engine.read(key: CacheKey(verbatim: "note 7")))
    #expect(try PropertyListDecoder().decode(Note.self, from: data) == Note(id: "note 7"))
    let fresh = try await Store<Note>(storage: engine, codec: PropertyListCodec())
    #expect(fresh.items == Note.numbered(0..<100))
  }

  @Test("Items are identified by String and UUID identifiers, or by a key path")
  func identifiers() async throws {
    struct Photo: Codable, Sendable, Identifiable { var id = UUID() }
    struct Bookmark: Codable, Sendable { var url: URL }
    let photos = try await Store<Photo>(storage: .memory())
    let photo = Photo()
    try await photos.insert([photo, Photo(), photo])
    #expect(photos.items.count == 2)

    let engine = MemoryStorageEngine()
    let bookmarks = try await Store<Bookmark>(storage: engine, cacheIdentifier: \.url.absoluteString)
    let url = try #require(URL(string: "https://example.com/a"))
    try await bookmarks.insert([Bookmark(url: url), Bookmark(url: url)])
    #expect(bookmarks.items.count == 1)
    #expect(try await engine.allKeys() == [CacheKey(verbatim: "https://example.com/a")])
  }

  @Test("A load in the background can be awaited")
  func background() async throws {
    let engine = MemoryStorageEngine()
    try await Store<Note>(storage: engine).insert(Note.numbered(0..<10))

    // In a synchronous function the unlabeled initializer loads in the background.
    func make() -> Store<Note> { Store(storage: engine) }
    for isAsync in [false, true] {
      let store = isAsync ? Store<Note>(loadingInBackground: engine) : make()
      #expect(store.items.isEmpty)
      guard case .loading = store.loadingState else { Issue.record("not loading"); return }
      try await store.itemsHaveLoaded()
      #expect(store.items == Note.numbered(0..<10))
      guard case .loaded = store.loadingState else { Issue.record("not loaded"); return }
    }
  }

  @Test("A change made during a load waits for it")
  func changeWhileLoading() async throws {
    let engine = MemoryStorageEngine()
    try await Store<Note>(storage: engine).insert(Note.numbered(0..<10))
    let store = Store<Note>(loadingInBackground: engine)
    try await store.insert(Note(id: "note 3", text: "new"))
    #expect(store.items.count == 10)
    #expect(store.items[3].text == "new")
    #expect(try await agree(store, engine))
  }

  @Test("A long load reports its progress")
  func progress() async throws {
    let engine = MemoryStorageEngine()
    try await Store<Note>(storage: engine).insert(Note.numbered(0..<20_000))
    let store = Store<Note>(loadingInBackground: engine)
    let states = LoadingStates(store)
    try await store.itemsHaveLoaded()
    let completed = states.seen.compactMap { state -> Int? in
      guard case .loading(let completed, total: 20_000) = state else { return nil }
      return completed
    }
    #expect(completed.count >= 3)
    #expect(completed == completed.sorted())
    #expect(completed.allSatisfy { (1...20_000).contains($0) })
  }

  @Test("For an entry that the engine lists twice, the store has the later version once")
  func entriesTwice() async throws {
    /// Repeats the first entries in another version after all others.
    struct RepeatsEntries: MinimalForwardingEngine {
      let base: any StorageEngine = MemoryStorageEngine()
      func readAllEntries() async throws -> [StorageEntry] {
        let entries = try await base.readAllEntries()
        return try entries
          + entries.prefix(3).map { entry in
            var (entry, note) = (entry, try JSONDecoder().decode(Note.self, from: entry.data))
            note.text = "again"
            entry.data = try JSONEncoder().encode(note)
            return entry
          }
      }
    }
    for count in [3, 200] {
      let engine = RepeatsEntries()
      for note in Note.numbered(0..<count) {
        try await engine.write(JSONEncoder().encode(note), key: CacheKey(verbatim: note.id))
      }
      let store = try await Store<Note>(storage: engine)
      #expect(store.items == Note.numbered(0..<3, text: "again") + Note.numbered(3..<count))
      try await store.remove(Note(id: "note 1"))
      #expect(store.items.map(\.id) == (0..<count).filter { $0 != 1 }.map { "note \($0)" })
    }
  }

  @Test("Identifiers of any length and content work", arguments: AnyEngine.all)
  func anyIdentifier(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    let store = try await Store<Note>(storage: engine)
    let long = String(repeating: "x", count: 511)
    let items = [
      "", " ", "a", "A", "\u{e9}", "e\u{301}", "../../x", "/", "a\0b", "😀", long, long + "1", long + "2",
      String(repeating: "é", count: 100_000), "2536A137-81F3-3E55-574F-AFF9ACB9F995",
    ].map { Note(id: $0) }
    try await store.insert(items)
    #expect(store.items.map { Array($0.id.utf8) } == items.map { Array($0.id.utf8) })
    #expect(try await agree(store, engine))
    try await store.remove(Note(id: long + "1"))
    try await store.insert(Note(id: "", text: "empty"))
    #expect(store.items.count == items.count - 1)
    #expect(store.items.first?.text == "empty")
    #expect(try await agree(store, engine))
    try await engine.close()
  }

  @Test("An identifier with the same hash as another is rejected and replaces no item")
  func sharedHash() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    let long = Note(id: String(repeating: "x", count: 600), text: "long")
    let forged = Note(id: CacheKey(long.id).value, text: "forged")
    try await store.insert(long)
    await #expect(throws: StorageError.self) { try await store.insert(forged) }
    await #expect(throws: StorageError.self) { try await store.remove(forged) }
    #expect(store.items == [long])

    try await store.removeAll()
    try await store.insert(forged)
    await #expect(throws: StorageError.self) { try await store.insert(long) }
    await #expect(throws: StorageError.self) { try await store.insert([Note(id: "other"), long]) }
    #expect(store.items == [forged])
    #expect(try await agree(store, engine))
  }

  @Test("Any sequence of calls has the same results as on an array")
  func model() async throws {
    var random = SystemRandomNumberGenerator()
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    var model: [Note] = []
    for step in 0..<3_000 {
      let note = Note(id: "\(Int.random(in: 0..<200, using: &random))", text: "\(step)")
      switch Int.random(in: 0..<100, using: &random) {
      case 0:
        model = []
        try await store.removeAll()
      case 1..<50:
        model.removeAll { $0.id == note.id }
        try await store.remove(note)
      default:
        if let index = model.firstIndex(where: { $0.id == note.id }) {
          model[index] = note
        } else {
          model.append(note)
        }
        try await store.insert(note)
      }
      // Not after every step, so that several removals accumulate between two comparisons.
      if Int.random(in: 0..<20, using: &random) == 0 { try #require(store.items == model) }
    }
    #expect(store.items == model)
    #expect(try await agree(store, engine))
  }

  @Test("A retained copy of the items does not change")
  func held() async throws {
    let store = try await Store<Note>(storage: .memory())
    try await store.insert(Note.numbered(0..<100))
    let before = store.items
    try await store.remove(before[0])
    try await store.insert(Note(id: "note 5", text: "new"))
    #expect(before == Note.numbered(0..<100))
    #expect(store.items.count == 99)
  }

  @Test("The value of a @Stored property is the items, and its projected value the store")
  func stored() async throws {
    let controller = NotesController(store: try await Store(storage: .memory()))
    try await controller.add(Note(id: "a"))
    #expect(controller.notes == [Note(id: "a")])
    try await controller.$notes.removeAll()
    #expect(controller.notes.isEmpty)
  }

  #if DEBUG
    @Test("A preview has its items immediately, and can be changed")
    func preview() async throws {
      struct Photo: Codable, Sendable, Identifiable { var id = UUID() }
      let store = Store.previewStore(items: [Note(id: "a"), Note(id: "b")])
      #expect(store.items.map(\.id) == ["a", "b"])
      try await store.remove(Note(id: "a"))
      try await store.removeAll().insert(Note(id: "c")).run()
      #expect(store.items.map(\.id) == ["c"])
      try await store.itemsHaveLoaded()
      #expect(Store.previewStore(items: [Photo(), Photo()]).items.count == 2)
      #expect(Store.previewStore(items: [Note(id: "a")], cacheIdentifier: \.text).items.count == 1)
    }
  #endif
}

@MainActor @Observable final class NotesController {
  @ObservationIgnored @Stored var notes: [Note]

  init(store: Store<Note>) { self._notes = Stored(in: store) }

  func add(_ note: Note) async throws { try await self.$notes.insert(note) }
}

/// Every previous loading state of a store.
@MainActor private final class LoadingStates {
  private(set) var seen: [StoreLoadingState] = []
  private let store: Store<Note>

  init(_ store: Store<Note>) {
    self.store = store
    observe()
  }

  private func observe() {
    withObservationTracking {
      _ = store.loadingState
    } onChange: {
      MainActor.assumeIsolated {
        // Called just before the change.
        self.seen.append(self.store.loadingState)
        self.observe()
      }
    }
  }
}
