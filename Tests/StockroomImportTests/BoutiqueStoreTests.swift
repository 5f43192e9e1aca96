import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import StockroomSQLite
import StockroomStore
import TestFixtures
import Testing

@MainActor
struct BoutiqueStoreTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test(
    "A store of Boutique in SQLite opens after an import, item by item equal and in the order of creation")
  func sqlite() async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    for note in Note.all { try database.insert(note.id, note.encoded()) }
    database.close()
    let engine = try SQLiteStorageEngine(directory: FileManager.Directory(url: place.beside("new")))
    let report = try await BodegaSQLiteSource(at: place.url).import(into: engine)
    #expect(report.imported == Note.all.count)
    let store = try await Store<Note>(storage: engine)
    #expect(store.items == Note.all)
    #expect(store.unreadableEntries.isEmpty)

    // The items are under the store's own keys.
    try await store.remove(Note.all[3])
    var changed = Note.all[0]
    changed.text = "changed"
    try await store.insert(changed)
    let again = try await Store<Note>(storage: engine)
    #expect(again.items == [changed] + Note.all[1...2] + Note.all[4...])
    try await engine.close()
  }

  @Test("A store of Boutique in files opens after an import: the identifiers are found behind their hashes")
  func disk() async throws {
    var notes = Note.all
    // A value may contain its own hash, for example as the name of a file.
    notes[0].text = CacheKey(notes[0].id).value
    for (index, note) in notes.enumerated() { try writeFile(note, CacheKey(note.id).value, second: index) }
    let engine = MemoryStorageEngine()
    let report = try await BodegaDiskSource(at: place.url).import(into: engine)
    #expect(report.imported == notes.count)
    #expect(report.unresolvedHashes == 0)
    let store = try await Store<Note>(storage: engine)
    #expect(store.items == notes)
    #expect(store.unreadableEntries.isEmpty)
  }

  struct Computed: Codable, Sendable, Hashable {
    var first: String
    var last: String
    var name: String { "\(first) \(last)" }
  }

  @Test("Identifiers that are computed are found with a key path, and without one counted")
  func computedIdentifiers() async throws {
    let people = [Computed(first: "Ada", last: "Lovelace"), Computed(first: "Emmy", last: "Noether")]
    for (index, person) in people.enumerated() {
      try writeFile(person, CacheKey(person.name).value, second: index)
    }
    let source = BodegaDiskSource(at: place.url)
    let unresolved = MemoryStorageEngine()
    #expect(try await source.import(into: unresolved).unresolvedHashes == 2)
    let engine = MemoryStorageEngine()
    let report = try await source.import(into: engine, keys: .identifiers(of: Computed.self, \.name))
    #expect(report.unresolvedHashes == 0)
    let store = try await Store<Computed>(storage: engine, cacheIdentifier: \.name)
    #expect(store.items == people)
    try await expectRefusal(
      of: source, .decodingFailed, "another key", keys: .identifiers(of: Computed.self, \.first))
    try await expectRefusal(of: source, .decodingFailed, keys: .identifiers(of: Note.self, \.id))
  }

  @Test("Object storage finds what was stored under hashed keys, in SQLite and in files")
  func objectStorage() async throws {
    let note = Note.all[1]
    let database = try LegacyDatabase(.bodega, in: place.url)
    try database.insert(note.id, note.encoded())
    database.close()
    let files = place.beside("files")
    try FileManager.default.createDirectory(at: files, withIntermediateDirectories: true)
    try note.encoded().write(to: files.appending(path: CacheKey(note.id).value))
    let sources: [any ImportSource] = [BodegaSQLiteSource(at: database.url), BodegaDiskSource(at: files)]
    for source in sources {
      let engine = MemoryStorageEngine()
      try await source.import(into: engine, keys: .hashed)
      let storage = ObjectStorage<Note>(storage: engine)
      #expect(try await storage.object(forKey: CacheKey(note.id)) == note)
    }
  }

  @Test("A single value that Boutique keeps in an engine is read with its codec, from SQLite and from files")
  func asyncStoredValue() async throws {
    let database = try LegacyDatabase(.bodega, in: place.url)
    let bytes = Data(#"{"value":["a","b"]}"#.utf8)
    try database.insert("unique-value", bytes)
    database.close()
    let files = place.beside("files")
    try FileManager.default.createDirectory(at: files, withIntermediateDirectories: true)
    try bytes.write(to: files.appending(path: CacheKey("unique-value").value))
    let sources: [any ImportSource] = [BodegaSQLiteSource(at: database.url), BodegaDiskSource(at: files)]
    for source in sources {
      let engine = MemoryStorageEngine()
      try await source.import(into: engine)
      let value = AsyncStoredValue<[String]>(
        wrappedValue: [], storage: engine, key: "unique-value", codec: .boutiqueValue)
      try await value.valueHasLoaded()
      #expect(value.wrappedValue == ["a", "b"])
    }
  }

  private func writeFile(_ item: some Encodable, _ name: String, second: Int) throws {
    let file = place.appending(name)
    try JSONEncoder().encode(item).write(to: file)
    try FileManager.default.setAttributes(
      [.modificationDate: Date(timeIntervalSince1970: 1_600_000_000 + Double(second))],
      ofItemAtPath: file.path(percentEncoded: false))
  }
}
