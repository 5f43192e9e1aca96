import Foundation
import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

@MainActor @Suite("A store that cannot be loaded") struct StoreLoadFailureTests {
  @Test("After a failed load every write throws and nothing is overwritten, and a second load succeeds")
  func load() async throws {
    let base = MemoryStorageEngine()
    try await Store<Note>(storage: base).insert(Note.numbered(0..<5))
    let engine = FailingStorageEngine(base)
    engine.failEveryCall(with: StorageError(.corrupted, "As told."))
    await #expect(throws: StorageError.self) { try await Store<Note>(storage: engine) }

    let store = Store<Note>(loadingInBackground: engine)
    for _ in 0..<2 {
      let error = await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
      #expect(error?.code == .corrupted)
    }
    for _ in 0..<2 {
      let error = await #expect(throws: StorageError.self) { try await store.insert(Note(id: "note 1")) }
      #expect(error?.code == .corrupted)
      #expect(error?.description.contains("As told.") == true)
    }
    await #expect(throws: StorageError.self) { try await store.removeAll() }
    #expect(try await notes(in: base) == Note.numbered(0..<5))
    engine.clearFaults()

    try await store.itemsHaveLoaded()
    try await store.insert(Note(id: "note 1", text: "new"))
    #expect(store.items.count == 5)
    #expect(try await agree(store, base))
  }

  @Test("After a failed load, each change tries to load the items once")
  func changeLoads() async throws {
    let base = MemoryStorageEngine()
    try await Store<Note>(storage: base).insert(Note.numbered(0..<5))
    let engine = FailingStorageEngine(base)
    engine.failEveryCall { $0.method == .readAllEntries }
    let store = Store<Note>(loadingInBackground: engine)
    await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
    engine.resetCalls()
    await #expect(throws: StorageError.self) { try await store.insert(Note(id: "x")) }
    #expect(engine.callCount == 1)
    engine.clearFaults()
    try await store.insert(Note(id: "x"))
    #expect(store.items == Note.numbered(0..<5) + [Note(id: "x")])
    #expect(try await agree(store, base))
  }

  @Test(
    "While nothing has been loaded, events begin with the load, whatever others change",
    .timeLimit(.minutes(60)))
  func eventsBeforeLoading() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    engine.failEveryCall(where: { $0.method == .readAllEntries })
    let store = Store<Note>(loadingInBackground: engine)
    await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
    engine.resetCalls()
    try await Store<Note>(storage: base).insert(Note(id: "a"))
    while !engine.calls.contains(where: { $0.method == .readAllEntries }) { await Task.yield() }
    // The load started by the change ends after that.
    await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
    #expect(await first(1, of: store.events).map(\.operation) == [.initialized])
  }

  @Test("A change that waits for a load that fails retries the load")
  func changeLoadsAgain() async throws {
    let base = MemoryStorageEngine()
    try await Store<Note>(storage: base).insert(Note.numbered(0..<5))
    let engine = FailingStorageEngine(base)
    engine.failCall { $0.method == .readAllEntries }
    let store = Store<Note>(loadingInBackground: engine)
    try await store.remove(Note(id: "note 1"))
    #expect(store.items.map(\.id) == ["note 0", "note 2", "note 3", "note 4"])
    #expect(try await agree(store, base))
  }

  @Test("The error of a background load is thrown once, and the next call loads again")
  func failedOnce() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    engine.failCall()
    let store = Store<Note>(loadingInBackground: engine)
    await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
    try await store.itemsHaveLoaded()
    try await store.insert(Note(id: "a"))
    #expect(store.items.count == 1)
  }

  @Test("A change that waits for a load also waits for the load that follows it")
  func changeDuringSecondLoad() async throws {
    for _ in 0..<30 {
      let base = MemoryStorageEngine()
      try await Store<Note>(storage: base).insert(Note.numbered(0..<5))
      let engine = FailingStorageEngine(base)
      engine.failCall()
      engine.hold()
      let store = Store<Note>(loadingInBackground: engine)
      try await engine.waitForHeldCalls()
      let insertion = Task { try await store.insert(Note(id: "x")) }
      let loading = Task {
        do { try await store.itemsHaveLoaded() } catch { try await store.itemsHaveLoaded() }
      }
      await Task.yield()
      engine.release()
      // It fails with the first load or waits for the second, depending on timing.
      let isInserted = if case .success = await insertion.result { true } else { false }
      try await loading.value
      try #require(store.items.contains(Note(id: "x")) == isInserted)
      try #require(try await agree(store, base))
    }
  }

  @Test("The error of a load is not thrown after a later load has succeeded", .timeLimit(.minutes(60)))
  func outdatedFailure() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    engine.failCall(with: StorageError(.corrupted, "As told.")) { $0.method == .readAllEntries }
    let store = Store<Note>(loadingInBackground: engine)
    try await store.insert(Note(id: "a"))
    // Makes the store reload the items.
    engine.failCall { $0.method == .readEntries }
    try await base.write(try JSONEncoder().encode(Note(id: "b")), key: key("b"))
    while store.items.count < 2 {
      try await store.itemsHaveLoaded()
      await Task.yield()
    }
    #expect(try await agree(store, base))
  }

  @Test("An observer that loads the items when a load begins does not start a second load")
  func loadByObserver() async throws {
    let base = MemoryStorageEngine()
    try await writeFirstNotes(3, to: base)
    let engine = FailingStorageEngine(base)
    engine.failCall { $0.method == .readAllEntries }
    let store = Store<SecondNote>(loadingInBackground: engine)
    await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
    engine.resetCalls()
    withObservationTracking {
      _ = store.loadingState
    } onChange: {
      // Loads the items first.
      MainActor.assumeIsolated { store.startRewritingOldVersions() }
    }
    try await store.itemsHaveLoaded()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(engine.calls.count { $0.method == .readAllEntries } == 1)
    #expect(store.items.count == 3)
  }

  @Test("At most one load runs at a time")
  func oneLoad() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    let store = try await Store<Note>(storage: engine)
    engine.failEveryCall()
    await #expect(throws: StorageError.self) { try await store.insert(Note(id: "a")) }
    // The load started by the failure ends before the engine works again.
    await #expect(throws: StorageError.self) { try await store.itemsHaveLoaded() }
    engine.clearFaults()
    engine.resetCalls()
    engine.hold { $0.method == .readAllEntries }
    async let first: Void = { try? await store.itemsHaveLoaded() }()
    async let second: Void = store.itemsHaveLoaded()
    try await engine.waitForHeldCalls()
    async let insertion: Void = store.insert(Note(id: "b"))
    for _ in 0..<10 { await Task.yield() }
    engine.release()
    _ = try await (first, second, insertion)
    #expect(engine.calls.count { $0.method == .readAllEntries } == 1)
    #expect(store.items.map(\.id) == ["b"])
    #expect(try await agree(store, base))
  }
}
