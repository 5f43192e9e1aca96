import Foundation
import StockroomCore
import StockroomEngines
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

/// Stores of a type that was changed three times.
@MainActor @Suite(.timeLimit(.minutes(60))) struct VersionedStoreTests {
  private let directory: TemporaryDirectory
  init() throws { directory = try TemporaryDirectory() }

  @Test(
    "Items of every version load, are rewritten, and are the same after a restart", arguments: AnyEngine.all)
  func everyVersion(_ kind: AnyEngine) async throws {
    let engine = try await kind.open(directory)
    let notes = try await writeEveryVersion(of: 0..<100, to: engine)
    let before = try await engine.readAllEntries()
    let store = try await Store<FourthNote>(storage: engine)
    #expect(store.items == notes && store.unreadableEntries.isEmpty)

    var events = store.events.makeAsyncIterator()
    _ = await events.next()
    let changes = ChangeCounter { MainActor.assumeIsolated { _ = store.items } }
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    guard case .rewritten(75) = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    #expect(changes.count == 0 && store.items == notes)
    #expect(Set(try await versions(in: engine).values) == ["4"])
    let after = try await engine.readAllEntries()
    #expect(after.map(\.key) == before.map(\.key) && after.map(\.createdAt) == before.map(\.createdAt))
    // No event precedes this one.
    try await store.insert(FourthNote(id: "new", lines: []))
    #expect(await events.next()?.items.map(\.id) == ["new"])
    #expect(try await Store<FourthNote>(storage: engine).items == store.items)
  }

  @Test("Each old entry is written once, and the next start writes nothing")
  func once() async throws {
    let base = MinimalEngine()
    try await writeEveryVersion(of: 0..<2_000, to: base)
    let old = try await versions(in: base).filter { $0.value != "4" }.keys
    let engine = FailingStorageEngine(base)
    for _ in 0..<2 {
      let store = try await Store<FourthNote>(storage: engine)
      store.startRewritingOldVersions()
      try await store.oldVersionsHaveBeenRewritten()
    }
    let written = engine.calls.filter(\.isWrite)
    #expect(written.map(\.keys.count) == [1_000, 500])
    #expect(written.flatMap(\.keys).map(\.value).sorted() == old.sorted())
  }

  @Test("Without a request to rewrite, an item is stored in the newest version when it is changed")
  func nextChange() async throws {
    let engine = MemoryStorageEngine()
    try await writeEveryVersion(of: 0..<4, to: engine)
    let store = try await Store<FourthNote>(storage: engine)
    #expect(try await store.update("note 0") { $0.isDone = true } != nil)
    try await store.insert(FourthNote(id: "note 1", lines: ["inserted"]))
    #expect(
      try await versions(in: engine) == ["note 0": "4", "note 1": "4", "note 2": "3", "note 3": "4"])
    #expect(store.items.map(\.isDone) == [true, false, false, false])
  }

  @Test(
    "An older program shows the entries that it can read, and leaves newer ones unchanged",
    arguments: AnyEngine.persistent
  )
  func olderProgram(_ kind: AnyEngine) async throws {
    var engine = try await kind.open(directory)
    try await writeEveryVersion(of: 0..<8, to: engine)
    let newer = try await engine.read(key: key("note 7"))
    func useOlderProgram<Note: StorableItem & Identifiable & Equatable>(
      _ note: @escaping @Sendable (String) -> Note, newest: Int
    ) async throws where Note.ID == String {
      try await engine.close()
      engine = try await kind.open(directory)
      let store = try await Store<Note>(storage: engine)
      #expect(store.items.count == 2 * newest)
      #expect(store.unreadableEntries.count == 8 - 2 * newest)
      #expect(store.unreadableEntries.allSatisfy { newerVersion($0.error)?.newestKnown == newest })
      let items = store.items
      for change in [
        { try await store.insert(note("note 7")) },
        { try await store.insert([note("x"), note("note 7")]) },
        { try await store.update("note 7") { $0 = note("note 7") } },
        { try await store.insert(note("x")).insert(note("note 7")).run() },
      ] as [@MainActor () async throws -> Void] {
        let error = await #expect(throws: StorageError.self) { try await change() }
        #expect(newerVersion(error) == NewerVersionError(version: 4, newestKnown: newest))
        #expect(store.items == items && store.unreadableEntries.count == 8 - 2 * newest)
      }
      // Usually in one batch.
      async let refused = code { try await store.insert(note("note 7")) }
      async let accepted = code { try await store.insert(note("own")) }
      #expect(await (refused, accepted) == (.unsupported, nil))
      try await store.remove(note("own"))
      #expect(store.items == items)
      #expect(try await engine.read(key: key("note 7")) == newer)
    }
    try await useOlderProgram({ FirstNote(id: $0, text: "") }, newest: 1)
    try await useOlderProgram({ SecondNote(id: $0, text: "") }, newest: 2)
    try await useOlderProgram({ ThirdNote(id: $0, lines: []) }, newest: 3)
    try await engine.close()
    #expect(try await Store<FourthNote>(storage: kind.open(directory)).items.count == 8)
  }

  @Test("An older program removes a newer entry only by a removal")
  func removal() async throws {
    let engine = MemoryStorageEngine()
    try await writeEveryVersion(of: 0..<8, to: engine)
    let store = try await Store<ThirdNote>(storage: engine)
    let replacement = ThirdNote(id: "note 3", lines: [])
    try await store.remove(replacement)
    #expect(store.unreadableEntries.map(\.key.value) == ["note 7"])
    try await store.insert(replacement)
    let other = ThirdNote(id: "note 7", lines: [])
    try await store.removeAll().insert(other).run()
    #expect(store.items == [other] && store.unreadableEntries.isEmpty)
  }

  @Test("An older program does not overwrite a newer entry that it has not read")
  func unreadNewerEntry() async throws {
    let engine = MinimalEngine()
    let store = try await Store<ThirdNote>(storage: engine)
    try await writeEveryVersion(of: 3..<4, to: engine)
    let error = await #expect(throws: StorageError.self) {
      try await store.insert(ThirdNote(id: "note 3", lines: []))
    }
    #expect(newerVersion(error) == NewerVersionError(version: 4, newestKnown: 3))
    #expect(try await versions(in: engine) == ["note 3": "4"] && store.items.isEmpty)
  }

  @Test(
    "A newer entry stored while an older program runs is reported there, and is an item again once it is readable"
  )
  func follows() async throws {
    let sqlite = try #require(AnyEngine.persistent.first { $0.name == "sqlite" })
    let (old, new) = (try await sqlite.open(directory), try await sqlite.open(directory))
    let older = try await Store<ThirdNote>(storage: old)
    try await older.insert([ThirdNote(id: "a", lines: []), ThirdNote(id: "b", lines: [])])
    let newer = try await Store<FourthNote>(storage: new)
    try await newer.update("a") { $0.title = "new" }
    try await wait { older.unreadableEntries.count == 1 }
    #expect(older.items.map(\.id) == ["b"])
    #expect(newerVersion(older.unreadableEntries.first?.error)?.version == 4)
    await #expect(throws: StorageError.self) { try await older.insert(ThirdNote(id: "a", lines: [])) }
    await #expect(throws: StorageError.self) { try await older.update("a") { $0.isDone = true } }
    #expect(try await Store<FourthNote>(storage: new)["a"]?.title == "new")
    try await older.update("b") { $0.isDone = true }
    try await wait { newer["b"]?.isDone == true }
    try await newer.remove(FourthNote(id: "a", lines: []))
    try await wait { older.unreadableEntries.isEmpty }
  }

  @Test("A migration step that throws hides no other item, and its entry is left unchanged")
  func failingStep() async throws {
    let engine = MemoryStorageEngine()
    let refused = try JSONEncoder().encode(FirstNote(id: "x", text: "refused"))
    try await engine.write(refused, key: key("x"))
    let notes = try await writeEveryVersion(of: 0..<8, to: engine)
    let store = try await Store<FourthNote>(storage: engine)
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.items == notes)
    let unreadable = try #require(store.unreadableEntries.first)
    #expect(unreadable.key.value == "x" && unreadable.error.code == .decodingFailed)
    #expect(unreadable.error.underlying is SecondNote.Refusal)
    #expect(try await engine.read(key: key("x")) == refused)
  }
}
