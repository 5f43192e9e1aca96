import Foundation
import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@MainActor @Suite("Events of a store") struct StoreEventTests {
  private func summary(_ events: [StoreEvent<Note>]) -> [String] {
    events.map { "\($0.operation) \($0.items.map(\.id).joined(separator: ","))" }
  }

  @Test("A subscriber receives every event, once and in order")
  func everything() async throws {
    let store = Store<Note>(loadingInBackground: MemoryStorageEngine())
    let events = store.events
    try await store.insert([Note(id: "a"), Note(id: "b")])
    try await store.insert(Note(id: "a", text: "new"))
    try await store.remove([Note(id: "b"), Note(id: "nobody")])
    try await store.remove(Note(id: "nobody"))
    try await store.insert([])
    try await store.removeAll().insert([Note(id: "c"), Note(id: "d")]).run()
    try await store.removeAll()
    let heard = await first(8, of: events)
    #expect(
      summary(heard) == [
        "initialized ", "loaded ", "insert a,b", "insert a", "remove b", "remove a", "insert c,d",
        "remove c,d",
      ])
    #expect(heard[3].items.first?.text == "new")
  }

  @Test("A late subscriber first receives the current state")
  func late() async throws {
    let store = try await Store<Note>(storage: .memory())
    try await store.insert(Note.numbered(0..<3))
    let events = store.events
    try await store.insert(Note(id: "x"))
    #expect(summary(await first(2, of: events)) == ["loaded note 0,note 1,note 2", "insert x"])
  }

  /// The streams that observers started as soon as they were notified.
  private let started = Shared<[AsyncStream<StoreEvent<Note>>]>([])

  /// Starts a stream when a property read by the closure changes.
  private func subscribe(to store: Store<Note>, onChangeOf read: () -> Void) {
    withObservationTracking(read) { [started] in
      MainActor.assumeIsolated {
        let events = store.events
        started.withLock { $0.append(events) }
      }
    }
  }

  /// The elements of each stream up to the event of the item "last".
  private func summariesOfStarted() async -> [[String]] {
    var summaries: [[String]] = []
    for stream in started.withLock({ $0 }) {
      var summary: [String] = []
      for await event in stream {
        summary.append("\(event.operation) \(event.items.count)")
        if event.items.last?.id == "last" { break }
      }
      summaries.append(summary)
    }
    return summaries
  }

  // One item is changed on the main actor, and 500 items off it, because there is a query.
  @Test(
    "A stream that an observer starts during a change includes the change once", .timeLimit(.minutes(60)),
    arguments: [1, 500])
  func startedByObserver(count: Int) async throws {
    let store = try await Store<Note>(storage: .memory())
    store.undoLimit = StoreUndoLimit(calls: 10)
    let query = store.query()
    subscribe(to: store) { _ = store.items }
    subscribe(to: store) { _ = query.count }
    subscribe(to: store) { _ = store.canUndo }
    try await store.insert(Note.numbered(0..<count))
    try await store.insert(Note(id: "last"))
    let later = ["loaded \(count)", "insert 1"]
    #expect(await summariesOfStarted() == [["loaded 0", "insert \(count)", "insert 1"], later, later])
    #expect(query.count == count + 1)
  }

  @Test(
    "A stream that an observer starts during a change of others includes the change once",
    .timeLimit(.minutes(60)), arguments: [1, 500])
  func startedDuringChangeOfOthers(count: Int) async throws {
    let engine = MemoryStorageEngine()
    let (store, other) = (try await Store<Note>(storage: engine), try await Store<Note>(storage: engine))
    let query = store.query()
    subscribe(to: store) { _ = query.count }
    try await other.insert(Note.numbered(0..<count))
    try await wait { store.items.count == count }
    try await other.insert(Note(id: "last"))
    #expect(await summariesOfStarted() == [["loaded \(count)", "insert 1"]])
    #expect(query.count == count + 1)
  }

  @Test(
    "A stream that an observer starts at the end of a load includes the items once, and nothing earlier",
    .timeLimit(.minutes(60)))
  func startedAfterLoad() async throws {
    let engine = MemoryStorageEngine()
    try await Store<Note>(storage: engine).insert(Note.numbered(0..<3))
    let store = Store<Note>(loadingInBackground: engine)
    let query = store.query()
    subscribe(to: store) { _ = store.items }
    subscribe(to: store) { _ = query.count }
    subscribe(to: store) { _ = store.loadingState }
    try await store.insert(Note(id: "last"))
    let later = ["loaded 3", "insert 1"]
    #expect(await summariesOfStarted() == [["initialized 0", "loaded 3", "insert 1"], later, later])
    #expect(query.count == 4)
  }

  @Test("A thousand subscribers, including cancelled ones and ones that never read, delay no change")
  func manySubscribers() async throws {
    let store = try await Store<Note>(storage: .memory())
    let silent = store.events
    let limited = store.events(bufferingPolicy: .bufferingNewest(1))
    let thousand = (0..<1_000).map { _ in store.events }
    let cancelled = Task { for await _ in store.events {} }
    let inserted = Task { for number in 0..<100 { try await store.insert(Note(id: "\(number)")) } }
    cancelled.cancel()
    await cancelled.value
    try await inserted.value

    let expected = ["loaded "] + (0..<100).map { "insert \($0)" }
    for events in thousand { try #require(summary(await first(101, of: events)) == expected) }
    #expect(summary(await first(1, of: limited)) == ["insert 99"])
    #expect(summary(await first(101, of: silent)) == expected)
  }

  @Test("Concurrent changes are reported in the order in which they took effect")
  func concurrentChanges() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    let events = store.events
    await withTaskGroup { group in
      for number in 0..<500 {
        group.addTask { await #expect(throws: Never.self) { try await store.insert(Note(id: "\(number)")) } }
      }
    }
    let heard = await first(501, of: events).dropFirst().flatMap(\.items)
    #expect(heard == store.items)
    #expect(try await agree(store, engine))
  }

  @Test("Streams end when the store is released")
  func end() async throws {
    var store: Store<Note>? = try await Store<Note>(storage: .memory())
    let events = try #require(store?.events)
    store = nil
    var heard = 0
    for await _ in events { heard += 1 }
    #expect(heard == 1)
  }

  @Test("Observers are notified once per call or chain, and not of calls that change nothing")
  func observation() async throws {
    let store = try await Store<Note>(storage: .memory())
    let changes = Counter()
    observe(store, changes)
    try await store.insert(Note.numbered(0..<100))
    #expect(changes.count == 1)
    try await store.removeAll().insert(Note.numbered(0..<50)).remove(Note(id: "note 3")).run()
    #expect(changes.count == 2)
    try await store.remove(Note(id: "nobody"))
    try await store.insert([])
    #expect(changes.count == 2)
    try await store.remove(Note(id: "note 1"))
    #expect(changes.count == 3)
  }

  /// Counts changes of the items continuously.
  private func observe(_ store: Store<Note>, _ changes: Counter) {
    withObservationTracking {
      _ = store.items
    } onChange: {
      changes.increment()
      MainActor.assumeIsolated { self.observe(store, changes) }
    }
  }

  @Test("Observations yields each change")
  func observations() async throws {
    guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return }
    let store = try await Store<Note>(storage: .memory())
    var seen: [Int] = []
    for await count in Observations({ store.items.count }) {
      seen.append(count)
      if count == 5 { break }
      // Not awaited, because the sequence observes changes only while a caller waits for the next element.
      Task { try await store.insert([Note(id: "\(count)")]) }
    }
    #expect(seen == [0, 1, 2, 3, 4, 5])
  }

  @Test("Reading a @Stored property observes the store")
  func throughWrapper() async throws {
    let controller = NotesController(store: try await Store(storage: .memory()))
    let changes = Counter()
    withObservationTracking {
      _ = controller.notes
    } onChange: {
      changes.increment()
    }
    try await controller.add(Note(id: "a"))
    #expect(changes.count == 1)
  }
}

/// A counter that any thread can increment.
final class Counter: Sendable {
  private let value = MutexProtected(0)
  var count: Int { value.withLock { $0 } }
  func increment() { value.withLock { $0 += 1 } }
}
