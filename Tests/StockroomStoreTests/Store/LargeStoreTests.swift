import Dispatch
import Foundation
import Observation
import StockroomCore
import StockroomMemory
import Testing

@testable import StockroomStore

/// Tells, when it ends, whether that is on the main actor, and looks at a store.
private final class Witness: Codable, Sendable, Identifiable {
  struct Log {
    var ends = 0
    var endsOnMainActor = 0
  }

  static let log = MutexProtected(Log())
  static let mainKey = DispatchSpecificKey<Bool>()

  let id: String

  init(_ id: String) { self.id = id }

  deinit {
    let isOnMainActor = DispatchQueue.getSpecific(key: Self.mainKey) == true
    Self.log.withLock { log in
      log.ends += 1
      if isOnMainActor { log.endsOnMainActor += 1 }
    }
  }

  static func startLog() {
    markMainActor()
    log.withLock { $0 = Log() }
  }

  static func markMainActor() { DispatchQueue.main.setSpecific(key: mainKey, value: true) }
}

/// Looks at a store when it ends.
private final class Looker: Codable, Sendable, Identifiable {
  @MainActor static var store: Store<Looker>?
  @MainActor static var seen: [Int] = []

  let id: String
  let isLooking: Bool

  init(_ id: String, isLooking: Bool = false) { (self.id, self.isLooking) = (id, isLooking) }

  deinit {
    guard isLooking, DispatchQueue.getSpecific(key: Witness.mainKey) == true else { return }
    MainActor.assumeIsolated { Looker.seen.append(Looker.store?.items.count ?? -1) }
  }
}

/// An engine that keeps nothing, so that only a store does.
private struct ForgetfulEngine: StorageEngine {
  func write(_ data: Data, key: CacheKey) async throws {}
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {}
  func read(key: CacheKey) async throws -> Data? { nil }
  func remove(key: CacheKey) async throws {}
  func allKeys() async throws -> [CacheKey] { [] }
  func createdAt(key: CacheKey) async throws -> Date? { nil }
  func updatedAt(key: CacheKey) async throws -> Date? { nil }
  func apply(_ operations: [StorageOperation]) async throws {}
}

@MainActor @Suite("A store of many items") struct LargeStoreTests {
  /// More than the main actor changes at once.
  private static let count = 10_000

  private func table(_ count: Int, unreadable: Int = 0) -> ItemTable<Note> {
    var table = ItemTable<Note>()
    table.reserveCapacity(count + 100)
    for number in 0..<unreadable {
      table.append(
        UnreadableEntry(key: CacheKey(verbatim: "old \(number)"), error: StorageError(.decodingFailed, "")))
    }
    let notes = Note.numbered(0..<count)
    table.append(notes, keys: notes.map { CacheKey(verbatim: $0.id) })
    return table
  }

  private func insertion(_ notes: [Note]) -> KeyedStep<Note> {
    .insert(notes.map { (key: CacheKey(verbatim: $0.id), item: $0) })
  }

  private func removal(_ notes: [Note]) -> KeyedStep<Note> {
    .remove(notes.map { CacheKey(verbatim: $0.id) })
  }

  @Test("What changes many items is not done on the main actor, and what changes few is")
  func work() {
    var large = table(Self.count)
    expect(&large, [.removeAll], isLittleWork: false)
    expect(&large, [insertion(Note.numbered(0..<5_000))], isLittleWork: false)
    expect(&large, [removal(Note.numbered(0..<5_000))], isLittleWork: false)
    expect(&large, [insertion([Note(id: "new")])], isLittleWork: true)
    expect(&large, [insertion([Note(id: "note 3")])], isLittleWork: true)
    expect(&large, [removal([Note(id: "note 3"), Note(id: "note 9")])], isLittleWork: true)
    var small = table(100)
    expect(&small, [.removeAll, insertion(Note.numbered(0..<1_000))], isLittleWork: true)
  }

  @Test(
    "What copies many items is not done on the main actor: where somebody keeps them, and where there is no room"
  )
  func copies() {
    var large = table(Self.count)
    let held = large.items
    expect(&large, [insertion([Note(id: "note 3")])], isLittleWork: false)
    withExtendedLifetime(held) {}
    large = table(Self.count)
    expect(&large, [insertion([Note(id: "note 3")])], isLittleWork: true)
    // Sooner or later there is no room for more.
    var isFull = false
    for number in 0..<100_000 where !isFull {
      let step = insertion([Note(id: "new \(number)")])
      isFull = !large.isLittleWork([step])
      if !isFull { _ = large.apply([step]) }
    }
    #expect(isFull)
  }

  @Test("Replacing an entry that could not be decoded among many moves few, and is done on the main actor")
  func unreadable() {
    var large = table(10, unreadable: Self.count)
    let step = insertion([Note(id: "old 500")])
    expect(&large, [step], isLittleWork: true)
    _ = large.apply([step])
    #expect(large.items.first == Note(id: "old 500"))
    #expect(large.unreadable.count == Self.count - 1)
    #expect(!large.changesUnreadable([step]))
  }

  private func expect(
    _ table: inout ItemTable<Note>, _ steps: [KeyedStep<Note>], isLittleWork expected: Bool,
    sourceLocation: SourceLocation = #_sourceLocation
  ) {
    let isLittleWork = table.isLittleWork(steps)
    #expect(isLittleWork == expected, sourceLocation: sourceLocation)
  }

  @Test(
    "Any sequence of large and small calls gives what an array would give, while somebody keeps the items or not"
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

  @Test("Large calls are reported as one event and one change for observers each")
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
    let heard = await first(5, of: events)
    #expect(heard.map(\.operation) == [.loaded, .insert, .remove, .insert, .remove])
    #expect(heard.map(\.items.count) == [0, Self.count, Self.count, Self.count, 9_000])
    #expect(store.items == Note.numbered(9_000..<Self.count))
  }

  @Test("Removed items are let go of, though nobody looks at the others", .timeLimit(.minutes(2)))
  func removed() async throws {
    await #expect(processExitsWith: .success) {
      try await LargeStoreTests.removeSome()
    }
  }

  static func removeSome() async throws {
    let store = try await Store<Witness>(storage: ForgetfulEngine())
    for number in 0..<100 { try await store.insert(Witness("\(number)")) }
    let keys = (0..<49).map { "\($0)" }
    Witness.startLog()
    for key in keys { try await store.remove(Witness(key)) }
    // Each, and the one that named it.
    while Witness.log.withLock({ $0.ends }) < 98 { await Task.yield() }
  }

  @Test(
    "The main actor does not let go of many items: neither of removed ones nor of those of a store that ends")
  func letsGoElsewhere() async throws {
    await #expect(processExitsWith: .success) {
      try await LargeStoreTests.letGo()
    }
  }

  static func letGo() async throws {
    Witness.startLog()
    do {
      let store = try await Store<Witness>(storage: ForgetfulEngine())
      for _ in 0..<2 { try await store.insert((0..<count).map { Witness("\($0)") }) }
    }
    while Witness.log.withLock({ $0.ends }) < 2 * count { await Task.yield() }
    try #require(Witness.log.withLock { $0.endsOnMainActor } == 0)
  }

  @Test("The end of an item may look at the store that it was in")
  func looksAtStore() async throws {
    let store = try await Store<Looker>(storage: ForgetfulEngine())
    Looker.store = store
    Witness.markMainActor()
    defer { Looker.store = nil }
    try await store.insert(Looker("other"))
    try await store.insert(Looker("replaced", isLooking: true))
    try await store.insert(Looker("replaced"))
    try await store.insert(Looker("removed", isLooking: true))
    try await store.insert(Looker("last"))
    try await store.remove(Looker("removed"))
    #expect(store.items.map(\.id) == ["other", "replaced", "last"])
    #expect(Looker.seen.contains(2) && Looker.seen.contains(3))
  }
}
