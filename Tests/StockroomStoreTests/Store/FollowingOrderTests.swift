import Foundation
import StockroomCore
import StockroomEngines
import StockroomLayers
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

/// The order of items that others change, on an engine without sequence numbers or with equal ones.
@MainActor @Suite("The order of others' changes", .timeLimit(.minutes(60))) struct FollowingOrderTests {
  private let directory: TemporaryDirectory
  init() throws { directory = try TemporaryDirectory() }

  private func openFiles() async throws -> any StorageEngine {
    try await EngineCatalog.select(["files"])[0].open(directory.url, .process)
  }

  /// Moves files with equal timestamps into the directory, like a program that unpacks an archive.
  private func addFiles(_ ids: [String]) throws {
    for id in ids {
      let file = directory.beside("\(id).entry")
      try JSONEncoder().encode(Note(id: id)).write(to: file)
      try FileManager.default.setAttributes(
        [.modificationDate: Date(timeIntervalSince1970: 1_700_000_000)], ofItemAtPath: file.path)
      try FileManager.default.moveItem(at: file, to: directory.appending("\(id).entry"))
    }
  }

  @Test("An item that others replace keeps its position among files with equal timestamps")
  func replacedFile() async throws {
    let (one, two) = (try await openFiles(), try await openFiles())
    try addFiles(["a", "b", "c"])
    let (first, second) = (try await Store<Note>(storage: one), try await Store<Note>(storage: two))
    try await first.insert(Note(id: "a", text: "new"))
    try await wait { second["a"]?.text == "new" }
    #expect(second.items.map(\.id) == ["a", "b", "c"])
    #expect(try await Store<Note>(storage: two).items == second.items)
  }

  @Test("Files with equal timestamps that others add are in the order of a new store, and can be replaced")
  func addedFiles() async throws {
    let (one, two) = (try await openFiles(), try await openFiles())
    let store = try await Store<Note>(storage: two)
    try addFiles(["a", "b", "c"])
    let entries = try ["b", "a", "c"].map { id in
      (key: key(id), data: try JSONEncoder().encode(Note(id: id)))
    }
    try await one.write(entries)
    try await wait { store.items.count == 3 }
    #expect(store.items.map(\.id) == ["a", "b", "c"])
    try await store.insert(Note(id: "b", text: "new"))
    #expect(store.items == [Note(id: "a"), Note(id: "b", text: "new"), Note(id: "c")])
    #expect(try await Store<Note>(storage: one).items == store.items)
  }

  @Test(
    "Items that others remove and insert in a chain move to the end, and replaced items keep their position")
  func unnumbered() async throws {
    let engine = UnnumberedEngine(base: MemoryStorageEngine())
    let (first, second) = (try await Store<Note>(storage: engine), try await Store<Note>(storage: engine))
    try await first.insert(["a", "b", "c"].map { Note(id: $0) })
    try await wait { second.items.count == 3 }
    try await first.remove(Note(id: "a")).insert(Note(id: "a", text: "new")).run()
    try await wait { second["a"]?.text == "new" }
    #expect(second.items.map(\.id) == ["b", "c", "a"])
    try await first.insert(Note(id: "c", text: "new"))
    try await wait { second["c"]?.text == "new" }
    #expect(second.items.map(\.id) == ["b", "c", "a"])
    #expect(first.items == second.items)
  }

  @Test(
    "An item that has expired and is written again moves to the end", arguments: [true, false],
    ["one", "several", "chain", "recorded"])
  func expired(hasTransactions: Bool, call: String) async throws {
    let days = Shared(0)
    let clock = ExpiryClock(
      now: { Date(timeIntervalSince1970: 1_800_000_000 + 86_400 * Double(days.withLock { $0 })) },
      uptime: { .seconds(86_400 * days.withLock { $0 }) })
    let base = MaybeTransactional(base: MemoryStorageEngine(), hasTransactions: hasTransactions)
    let engine = base.expiring(after: .seconds(60), clock: clock)
    let store = try await Store<Note>(storage: engine)
    try await store.insert(["a", "b", "c"].map { Note(id: $0) })
    days.withLock { $0 += 1 }
    let note = Note(id: "a", text: "new")
    let events = store.events
    switch call {
    case "several": try await store.insert([note, Note(id: "d")])
    case "chain": try await store.insert(Note(id: "d")).insert(note).remove(Note(id: "d")).run()
    default:
      store.undoLimit = StoreUndoLimit(calls: call == "recorded" ? 10 : 0)
      try await store.insert(note)
    }
    let last = call == "several" ? ["a", "d"] : ["a"]
    try await wait { Array(store.items.map(\.id).suffix(last.count)) == last }
    #expect(try await Store<Note>(storage: engine).items.map(\.id) == last)
    #expect(store["a"] == note)
    // Without transactions the whole batch is reported.
    guard call == "several", hasTransactions else { return }
    try await store.insert(Note(id: "z"))
    var insertions: [String] = []
    for await event in events where event.operation == .insert {
      insertions += event.items.map(\.id)
      if insertions.last == "z" { break }
    }
    #expect(insertions.count { $0 == "d" } == 1)
  }
}

/// An engine without sequence numbers, like any engine outside this package.
private struct UnnumberedEngine: StorageLayer {
  let base: MemoryStorageEngine

  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().map(unnumbered)
  }

  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys).map(unnumbered)
  }

  private func unnumbered(_ entry: StorageEntry) -> StorageEntry {
    StorageEntry(key: entry.key, data: entry.data, createdAt: entry.createdAt, updatedAt: entry.updatedAt)
  }
}
