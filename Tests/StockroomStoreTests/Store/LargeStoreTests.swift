import Dispatch
import Foundation
import Observation
import StockroomCore
import StockroomMemory
import TestFixtures
import Testing

@testable import StockroomStore

/// Accesses a store in its `deinit`.
private final class ReadingItem: Codable, Sendable, Identifiable {
  @MainActor static var store: Store<ReadingItem>?
  @MainActor static var seen: [Int] = []

  let id: String
  let readsOnDeinit: Bool

  init(_ id: String, readsOnDeinit: Bool = false) { (self.id, self.readsOnDeinit) = (id, readsOnDeinit) }

  deinit {
    guard readsOnDeinit, DispatchQueue.getSpecific(key: DeinitRecorder.mainKey) == true else { return }
    MainActor.assumeIsolated { ReadingItem.seen.append(ReadingItem.store?.items.count ?? -1) }
  }
}

@MainActor @Suite("A store of many items") struct LargeStoreTests {
  /// More than the main actor changes at once.
  private static let count = 10_000

  private func table(_ count: Int, unreadable: Int = 0) -> ItemTable<Note> {
    var table = ItemTable<Note>()
    table.reserveCapacity(count + 100)
    for number in 0..<unreadable {
      table.append(
        UnreadableEntry(key: CacheKey(verbatim: "old \(number)"), error: StorageError(.decodingFailed, "")),
        sequence: number)
    }
    let notes = Note.numbered(0..<count)
    table.append(
      notes, keys: notes.map { CacheKey(verbatim: $0.id) }, sequences: Array(unreadable..<unreadable + count))
    return table
  }

  private func insertion(_ notes: [Note]) -> KeyedStep<Note> {
    .insert(notes.map { (key: CacheKey(verbatim: $0.id), item: $0) })
  }

  private func removal(_ notes: [Note]) -> KeyedStep<Note> {
    .remove(notes.map { CacheKey(verbatim: $0.id) })
  }

  @Test("Large changes are made off the main actor, and small ones on it")
  func work() {
    var large = table(Self.count)
    expect(&large, [.removeAll], isCheap: false)
    expect(&large, [insertion(Note.numbered(0..<5_000))], isCheap: false)
    expect(&large, [removal(Note.numbered(0..<5_000))], isCheap: false)
    expect(&large, [insertion([Note(id: "new")])], isCheap: true)
    expect(&large, [insertion([Note(id: "note 3")])], isCheap: true)
    expect(&large, [removal([Note(id: "note 3"), Note(id: "note 9")])], isCheap: true)
    var small = table(100)
    expect(&small, [.removeAll, insertion(Note.numbered(0..<1_000))], isCheap: true)
  }

  @Test(
    "Many items are not copied on the main actor, whether an array is retained or capacity is exceeded"
  )
  func copies() {
    var large = table(Self.count)
    let held = large.items
    expect(&large, [insertion([Note(id: "note 3")])], isCheap: false)
    withExtendedLifetime(held) {}
    large = table(Self.count)
    expect(&large, [insertion([Note(id: "note 3")])], isCheap: true)
    // At some point the capacity is exceeded.
    var isFull = false
    for number in 0..<100_000 where !isFull {
      let step = insertion([Note(id: "new \(number)")])
      isFull = !large.isCheap([step])
      if !isFull { _ = large.apply([step]) }
    }
    #expect(isFull)
  }

  @Test("Changes of others do not copy many items on the main actor either")
  func followedCopies() {
    func state(_ id: String, _ sequence: Int) -> EngineState<Note> {
      let key = CacheKey(verbatim: id)
      let entry = StorageEntry(key: key, data: Data(), createdAt: .now, updatedAt: .now)
      var state = EngineState<Note>()
      state.changed.append(
        EngineState<Note>.Entry(
          key: key, sequence: sequence, content: .success(Note(id: id)), stamp: EntryStamp(entry),
          digest: ValueDigest(entry.data)))
      return state
    }
    var large = table(Self.count)
    let isCheap = (large.isCheap(state("note 3", 3)), large.isCheap(state("new", Self.count)))
    #expect(isCheap.0 && isCheap.1)
    let held = large.items
    let isCheapWhileHeld = large.isCheap(state("note 3", 3))
    #expect(!isCheapWhileHeld)
    withExtendedLifetime(held) {}
    large = table(Self.count)
    // At some point the capacity is exceeded.
    var isFull = false
    for number in 0..<100_000 where !isFull {
      let added = state("new \(number)", Self.count + number)
      isFull = !large.isCheap(added)
      if !isFull { _ = large.apply(added) }
    }
    #expect(isFull)
  }

  @Test(
    "Others' changes are applied off the main actor while a copy of many items is retained",
    .timeLimit(.minutes(60)))
  func followedWhileRetained() async throws {
    DeinitRecorder.markMainActor()
    let engine = MemoryStorageEngine()
    let other = try await Store<Note>(storage: engine)
    try await other.insert(Note.numbered(0..<Self.count))
    let store = try await Store<Note>(storage: engine)
    let (calls, callsOnMainActor) = (Counter(), Counter())
    let query = store.query(where: { note in
      if note.text == "new" {
        calls.increment()
        if DispatchQueue.getSpecific(key: DeinitRecorder.mainKey) == true { callsOnMainActor.increment() }
      }
      return true
    })
    await query.itemsHaveLoaded()
    let held = store.items
    try await other.insert(Note(id: "note 3", text: "new"))
    try await wait { store["note 3"]?.text == "new" }
    #expect(calls.count > 0 && callsOnMainActor.count == 0)
    #expect(query.count == Self.count && held[3].text.isEmpty)
  }

  @Test("Removing a few of many items moves the others within their array")
  func removedInPlace() {
    var large = table(Self.count)
    let before = [address(of: large.items), address(of: large.table.sequences)]
    _ = large.apply([removal([Note(id: "note 3"), Note(id: "note 9")])])
    let after = [address(of: large.items), address(of: large.table.sequences)]
    #expect(after == before)
    #expect(large.items.prefix(9).map(\.id) == [0, 1, 2, 4, 5, 6, 7, 8, 10].map { "note \($0)" })
    #expect(large.items.count == Self.count - 2)
  }

  /// The address of the elements of an array.
  private func address<Element>(of array: [Element]) -> Int {
    array.withUnsafeBufferPointer { Int(bitPattern: $0.baseAddress) }
  }

  @Test("Replacing one of many unreadable entries moves few bytes on the main actor, within their array")
  func unreadable() {
    var large = table(10, unreadable: Self.count)
    let step = insertion([Note(id: "old 500")])
    expect(&large, [step], isCheap: true)
    let before = [address(of: large.unreadable), address(of: large.unreadableTable.sequences)]
    _ = large.apply([step])
    let after = [address(of: large.unreadable), address(of: large.unreadableTable.sequences)]
    #expect(after == before)
    #expect(large.items.first == Note(id: "old 500"))
    #expect(large.unreadable.count == Self.count - 1)
    #expect(!large.changesUnreadable([step]))
  }

  private func expect(
    _ table: inout ItemTable<Note>, _ steps: [KeyedStep<Note>], isCheap expected: Bool,
    sourceLocation: SourceLocation = #_sourceLocation
  ) {
    let isCheap = table.isCheap(steps)
    #expect(isCheap == expected, sourceLocation: sourceLocation)
  }

  @Test(
    "Any sequence of large and small calls has the same results as on an array, with and without a retained copy"
  )
  func model() async throws {
    var random = SystemRandomNumberGenerator()
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    var model = Note.numbered(0..<Self.count)
    try await store.insert(model)
    var held: [(items: [Note], model: [Note])] = []
    for step in 0..<60 {
      let count = [1, 3, 20, 6_000].randomElement(using: &random) ?? 1
      let start = Int.random(in: 0..<12_000, using: &random)
      let notes = (start..<start + count).map { Note(id: "note \($0)", text: "\(step)") }
      let ids = Set(notes.map(\.id))
      if Bool.random(using: &random) {
        model.removeAll { ids.contains($0.id) }
        try await store.remove(notes)
      } else {
        let byID = Dictionary(uniqueKeysWithValues: notes.map { ($0.id, $0) })
        let present = Set(model.map(\.id))
        model = model.map { byID[$0.id] ?? $0 } + notes.filter { !present.contains($0.id) }
        try await store.insert(notes)
      }
      try #require(store.items == model)
      if step % 3 == 0 { held = [(store.items, model)] }
      if step % 5 == 0 { held = [] }
      #expect(held.allSatisfy { $0.items == $0.model })
    }
    #expect(try await agree(store, engine))
  }

  @Test("Each large call is one event, and one change for observers")
  func events() async throws {
    let store = try await Store<Note>(storage: .memory())
    let events = store.events
    let notes = Note.numbered(0..<Self.count)
    let changes = Counter()
    withObservationTracking {
      _ = store.items
    } onChange: {
      changes.increment()
    }
    try await store.insert(notes)
    #expect(changes.count == 1)
    try await store.removeAll().insert(notes).remove(Note.numbered(0..<9_000)).run()
    let received = await first(5, of: events)
    #expect(received.map(\.operation) == [.loaded, .insert, .remove, .insert, .remove])
    #expect(received.map(\.items.count) == [0, Self.count, Self.count, Self.count, 9_000])
    #expect(store.items == Note.numbered(9_000..<Self.count))
  }

  @Test("Removed items are released without a read of the others", .ownThreads, .timeLimit(.minutes(60)))
  func removed() async throws {
    await #expect(processExitsWith: .success) {
      try await LargeStoreTests.removeSome()
    }
  }

  static func removeSome() async throws {
    let store = try await Store<DeinitRecorder>(storage: NullEngine())
    for number in 0..<100 { try await store.insert(DeinitRecorder("\(number)")) }
    let keys = (0..<49).map { "\($0)" }
    DeinitRecorder.startLog()
    for key in keys { try await store.remove(DeinitRecorder(key)) }
    // Each removed item, and the one that named it in the call.
    while DeinitRecorder.log.withLock({ $0.deinits }) < 98 { await Task.yield() }
  }

  /// What holds the last reference to items that a call releases.
  enum LastReference: String, CaseIterable, Codable, Sendable {
    case replacedItems, releasedStore, chain, droppedEvent
  }

  @Test("Many items are released off the main actor", .ownThreads, arguments: LastReference.allCases)
  func releasesInBackground(reference: LastReference) async throws {
    await #expect(processExitsWith: .success) { [reference] in
      try await LargeStoreTests.release(reference)
    }
  }

  static func release(_ reference: LastReference) async throws {
    DeinitRecorder.startLog()
    func items() -> [DeinitRecorder] { (0..<count).map { DeinitRecorder("\($0)") } }
    switch reference {
    case .replacedItems:
      let store = try await Store<DeinitRecorder>(storage: NullEngine())
      for _ in 0..<2 { try await store.insert(items()) }
      try await waitForDeinits()
    case .releasedStore:
      try await Store<DeinitRecorder>(storage: NullEngine()).insert(items())
      try await waitForDeinits()
    case .chain:
      let store = try await Store<DeinitRecorder>(storage: NullEngine())
      try await store.insert(items()).removeAll().run()
      try await waitForDeinits()
    case .droppedEvent:
      let store = try await Store<DeinitRecorder>(storage: NullEngine())
      let events = store.events(bufferingPolicy: .bufferingNewest(4))
      // After two rounds, only the first two of four events hold the first items.
      for _ in 0..<2 {
        try await store.insert(items())
        try await store.removeAll()
      }
      for id in ["a", "b"] { try await store.insert(DeinitRecorder(id)) }
      try await waitForDeinits()
      withExtendedLifetime(events) {}
    }
  }

  private static func waitForDeinits() async throws {
    while DeinitRecorder.log.withLock({ $0.deinits }) < count { await Task.yield() }
    let deinits = DeinitRecorder.log.withLock { $0.deinitsOnMainActor }
    try #require(deinits == 0, "\(deinits) of \(count)")
  }

  @Test("The deinit of an item may access the store")
  func deinitUsesStore() async throws {
    let store = try await Store<ReadingItem>(storage: NullEngine())
    ReadingItem.store = store
    DeinitRecorder.markMainActor()
    defer { ReadingItem.store = nil }
    try await store.insert(ReadingItem("other"))
    try await store.insert(ReadingItem("replaced", readsOnDeinit: true))
    try await store.insert(ReadingItem("replaced"))
    try await store.insert(ReadingItem("removed", readsOnDeinit: true))
    try await store.insert(ReadingItem("last"))
    try await store.remove(ReadingItem("removed"))
    #expect(store.items.map(\.id) == ["other", "replaced", "last"])
    #expect(ReadingItem.seen.contains(2) && ReadingItem.seen.contains(3))
  }
}
