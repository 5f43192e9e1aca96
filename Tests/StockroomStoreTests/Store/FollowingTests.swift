import Foundation
import StockroomCore
import StockroomEngines
import StockroomLayers
import StockroomMemory
@testable import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

/// Stores that follow the changes of others (rule S9), and updates (rule S10).
@MainActor @Suite struct FollowingTests {
  struct Note: Codable, Sendable, Identifiable, Equatable {
    var id: String
    var text = ""
    var count = 0
  }

  private nonisolated static let engines = EngineCatalog.onThisMachine.map(\.name)
  private nonisolated static let shared = ["files", "sqlite", "lmdb"]

  /// Two engines on one place, or the same engine twice if a second one cannot be opened.
  private static func openTwice(
    _ name: String, in directory: borrowing TemporaryDirectory
  ) async throws -> (any StorageEngine, any StorageEngine) {
    let entry = try EngineCatalog.select([name])[0]
    let engine = try await entry.open(directory.url, .process)
    return (engine, shared.contains(name) ? try await entry.open(directory.url, .process) : engine)
  }

  private func wait(until isTrue: () throws -> Bool) async throws {
    while try !isTrue() {
      try Task.checkCancellation()
      await Task.yield()
    }
  }

  @Test(
    "A store shows the inserts, replacements and removals of another store", .timeLimit(.minutes(60)),
    arguments: engines)
  func follows(name: String) async throws {
    let directory = try TemporaryDirectory()
    let (one, two) = try await Self.openTwice(name, in: directory)
    let (first, second) = (try await Store<Note>(storage: one), try await Store<Note>(storage: two))
    try await first.insert([Note(id: "a"), Note(id: "b")])
    try await wait { second.items.map(\.id) == ["a", "b"] }
    try await second.insert(Note(id: "b", text: "changed"))
    try await wait { first.items.last?.text == "changed" }
    try await second.remove(Note(id: "a"))
    try await wait { first.items.map(\.id) == ["b"] }
    try await first.removeAll().insert([Note(id: "c"), Note(id: "d")]).run()
    try await wait { second.items.map(\.id) == ["c", "d"] }
  }

  @Test(
    "Stores that insert concurrently converge to the same order", .timeLimit(.minutes(60)),
    arguments: engines)
  func converges(name: String) async throws {
    let directory = try TemporaryDirectory()
    let (one, two) = try await Self.openTwice(name, in: directory)
    let (first, second) = (try await Store<Note>(storage: one), try await Store<Note>(storage: two))
    for round in 0..<5 {
      async let done: Void = {
        for index in 0..<20 { try await first.insert(Note(id: "first \(round) \(index)")) }
        try await first.remove(Note(id: "first \(round) 3"))
      }()
      for index in 0..<20 {
        try await second.insert([Note(id: "second \(round) \(index)"), Note(id: "both \(index)")])
      }
      try await second.remove(Note(id: "both 7"))
      try await second.insert(Note(id: "both 7"))
      try await done
    }
    let fresh = try await Store<Note>(storage: two)
    try await wait { first.items == fresh.items && second.items == fresh.items }
  }

  @Test("Each change of others is one event", .timeLimit(.minutes(60)), arguments: shared)
  func events(name: String) async throws {
    let directory = try TemporaryDirectory()
    let (one, two) = try await Self.openTwice(name, in: directory)
    let (first, second) = (try await Store<Note>(storage: one), try await Store<Note>(storage: two))
    var events = second.events.makeAsyncIterator()
    #expect(await events.next()?.operation == .loaded)
    try await first.insert(Note(id: "a"))
    let inserted = try #require(await events.next())
    #expect(inserted.operation == .insert && inserted.items.map(\.id) == ["a"])
    try await first.remove(Note(id: "a"))
    let removed = try #require(await events.next())
    #expect(removed.operation == .remove && removed.items.map(\.id) == ["a"])
  }

  @Test("A store does not read back its own writes", .timeLimit(.minutes(60)), arguments: engines)
  func ownChanges(name: String) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.url, .process)
    let store = try await Store<Note>(storage: engine)
    var events = store.events.makeAsyncIterator()
    _ = await events.next()
    for index in 0..<10 { try await store.insert(Note(id: "\(index)")) }
    // If the own writes were read back, they would be reported again before this one.
    try await engine.write(try JSONEncoder().encode(Note(id: "other")), key: CacheKey(verbatim: "other"))
    for index in 0..<10 { #expect(await events.next()?.items.map(\.id) == ["\(index)"]) }
    #expect(await events.next()?.items.map(\.id) == ["other"])
  }

  @Test(
    "A store's write over one that others made just before is one event", .timeLimit(.minutes(60)))
  func overwritten() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    var events = store.events.makeAsyncIterator()
    #expect(await events.next()?.operation == .loaded)
    let key = CacheKey(verbatim: "a")
    try await store.insert(Note(id: "a"))
    // Simulates a report of a write by others before this store's, which arrives later.
    store.note(.keys([key]))
    try await store.update("a") { $0.count = 1 }
    store.note(.keys([key]))
    try await engine.write(try JSONEncoder().encode(Note(id: "b")), key: CacheKey(verbatim: "b"))
    for note in [Note(id: "a"), Note(id: "a", count: 1), Note(id: "b")] {
      #expect(await events.next()?.items == [note])
    }
    // A later write of others is reported, even if it is identical.
    for count in [2, 1] {
      try await engine.write(try JSONEncoder().encode(Note(id: "a", count: count)), key: key)
      #expect(await events.next()?.items == [Note(id: "a", count: count)])
    }
  }

  @Test(
    "A written item moves to the position that the engine assigned, without another event",
    .timeLimit(.minutes(60)))
  func movedOwn() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    var events = store.events.makeAsyncIterator()
    #expect(await events.next()?.operation == .loaded)
    let (first, own) = (CacheKey(verbatim: "first"), CacheKey(verbatim: "own"))
    // Reported explicitly below, to control the time. The feed omits changes of this origin.
    try await ChangeOrigin.$current.withValue(store.backend.origin) {
      try await engine.write(try JSONEncoder().encode(Note(id: "first")), key: first)
    }
    try await store.insert(Note(id: "own"))
    store.note(.keys([own]))
    store.note(.keys([first]))
    #expect(await events.next()?.items.map(\.id) == ["own"])
    #expect(await events.next()?.items.map(\.id) == ["first"])
    #expect(store.items.map(\.id) == ["first", "own"])
  }

  @Test(
    "No update is lost with concurrent tasks, stores and engines", .timeLimit(.minutes(60)),
    arguments: engines)
  func updates(name: String) async throws {
    let directory = try TemporaryDirectory()
    let (one, two) = try await Self.openTwice(name, in: directory)
    let (first, second) = (try await Store<Note>(storage: one), try await Store<Note>(storage: two))
    let note = Note(id: "a")
    try await first.insert(note)
    try await withThrowingTaskGroup { group in
      for store in [first, second] {
        for _ in 0..<5 {
          group.addTask { for _ in 0..<10 { try await store.update(note) { $0.count += 1 } } }
        }
      }
      try await group.waitForAll()
    }
    try await wait { first["a"]?.count == 100 && second["a"]?.count == 100 }
  }

  @Test("An update that throws, changes the identifier or finds no item changes nothing", arguments: engines)
  func failingUpdates(name: String) async throws {
    struct Refusal: Error {}
    let directory = try TemporaryDirectory()
    let engine = try await EngineCatalog.select([name])[0].open(directory.url, .process)
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note(id: "a", text: "before"))
    await #expect(throws: Refusal.self) {
      try await store.update(Note(id: "a")) { note in
        note.text = "after"
        throw Refusal()
      }
    }
    await #expect(throws: StorageError.self) { try await store.update(Note(id: "a")) { $0.id = "b" } }
    #expect(try await store.update(Note(id: "c")) { $0.text = "after" } == nil)
    #expect(store.items == [Note(id: "a", text: "before")])
    #expect(try await store.update("a") { $0.text = "after" } == Note(id: "a", text: "after"))
    #expect(
      store["a"]?.text == "after" && store.contains(id: "a") && !store.contains(id: "b") && store["b"] == nil)
  }

  @Test("An item that others replace with an unreadable entry is reported", .timeLimit(.minutes(60)))
  func unreadable() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    try await store.insert([Note(id: "a"), Note(id: "b")])
    try await engine.write(Data("?".utf8), key: CacheKey(verbatim: "a"))
    try await wait { store.unreadableEntries.count == 1 }
    #expect(store.items.map(\.id) == ["b"])
    try await engine.write(try JSONEncoder().encode(Note(id: "a")), key: CacheKey(verbatim: "a"))
    try await wait { store.unreadableEntries.isEmpty }
    #expect(store.items.map(\.id) == ["a", "b"])
  }

  @Test("An unreferenced store is released while others keep making changes", .timeLimit(.minutes(60)))
  func releasedBesideChanges() async throws {
    let key = CacheKey(verbatim: "a")
    let engine = ChangedWhileRead(base: MemoryStorageEngine())
    weak var gone: Store<Note>?
    do {
      let store = try await Store<Note>(storage: engine)
      gone = store
      engine.whenRead.withLock { $0 = { [weak store] in await store?.note(.keys([key])) } }
      store.note(.keys([key]))
    }
    try await wait { gone == nil }
  }

  @Test("A change that others make during a load is not lost", .timeLimit(.minutes(60)))
  func changeWhileLoading() async throws {
    let engine = HeldAfterReading(base: MemoryStorageEngine())
    let store = Store<Note>(loadingInBackground: engine)
    await engine.waitUntilRead()
    let (key, data) = (CacheKey(verbatim: "a"), try JSONEncoder().encode(Note(id: "a")))
    // Reported explicitly below, to control the time. The feed omits changes of this origin.
    try await ChangeOrigin.$current.withValue(store.backend.origin) {
      try await engine.base.write(data, key: key)
    }
    store.note(.keys([key]))
    try await wait { if case .none = store.pendingChange { true } else { false } }
    engine.release()
    try await wait { store.items.map(\.id) == ["a"] }
  }

  @Test(
    "A load that begins during a subscription reads after the subscription is complete",
    .timeLimit(.minutes(60)))
  func loadDuringSubscription() async throws {
    struct Other: Codable, Sendable, Identifiable { var id: String }
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    // The first load fails before the store subscribes, so its first change subscribes.
    var others: Store<Other>? = try await Store<Other>(storage: engine)
    let store = Store<Note>(loadingInBackground: engine)
    store.subscriptionTimeout = .seconds(3_600)
    await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
    #expect(others?.items.isEmpty == true)
    others = nil
    engine.resetCalls()
    engine.hold { $0.method == .changes }
    let insertion = Task { try await store.insert(Note(id: "a")) }
    try await engine.waitForHeldCalls()
    let loading = Task { try await store.itemsHaveLoaded() }
    // Enough for a load that does not wait.
    for _ in 0..<1_000 { await Task.detached {}.value }
    #expect(!engine.calls.contains { $0.method == .readAllEntries })
    try await base.write(try JSONEncoder().encode(Note(id: "b")), key: CacheKey(verbatim: "b"))
    engine.release()
    try await loading.value
    try await insertion.value
    #expect(store.items.map(\.id) == ["b", "a"])
  }

  @Test(
    "If others' changes cannot be read, all items are reloaded, and a failure of the reload is reported",
    .timeLimit(.minutes(60)))
  func failedRead() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    let (store, other) = (try await Store<Note>(storage: engine), try await Store<Note>(storage: base))
    engine.failCall { $0.method == .readEntries }
    try await other.insert(Note(id: "a"))
    try await wait { store.items.map(\.id) == ["a"] }
    engine.failEveryCall { [.readEntries, .readAllEntries].contains($0.method) }
    try await other.insert(Note(id: "b"))
    try await wait { if case .failed = store.loadingState { true } else { false } }
    engine.clearFaults()
    try await other.insert(Note(id: "c"))
    try await wait { store.items.map(\.id) == ["a", "b", "c"] }
  }

  @Test("The key of a hashed identifier is available once others have removed the entry")
  func hashedIdentifier() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    let key = CacheKey(String(repeating: "x", count: 600))
    try await store.insert(Note(id: key.rawValue))
    try await engine.remove(key: CacheKey(verbatim: key.value))
    try await wait { store.items.isEmpty }
    try await store.insert(Note(id: key.value))
    #expect(store.items.map(\.id) == [key.value])
  }
}

/// An engine in which others make another change after each read of entries.
private final class ChangedWhileRead: StorageLayer {
  let base: MemoryStorageEngine
  let whenRead = MutexProtected<(@Sendable () async -> Void)?>(nil)
  init(base: MemoryStorageEngine) { self.base = base }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let entries = try await base.readEntries(keys: keys)
    await whenRead.withLock { $0 }?()
    return entries
  }
}

/// An engine whose `readAllEntries()` returns only once it is released.
private struct HeldAfterReading: StorageLayer {
  let base: MemoryStorageEngine
  private let hasRead = AsyncStream.makeStream(of: Never.self)
  private let isReleased = AsyncStream.makeStream(of: Never.self)

  init(base: MemoryStorageEngine) { self.base = base }

  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    hasRead.continuation.finish()
    for await _ in isReleased.stream {}
    return entries
  }

  func waitUntilRead() async { for await _ in hasRead.stream {} }

  func release() { isReleased.continuation.finish() }
}
