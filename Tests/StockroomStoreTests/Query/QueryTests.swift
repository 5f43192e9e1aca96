import Dispatch
import Foundation
import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

/// A section that counts its comparisons and hashes.
private struct CountedSection: Hashable, Comparable, Sendable {
  static let mainKey = DispatchSpecificKey<Bool>()

  let number: Int
  let comparisons: Counter
  let hashesOnMainActor: Counter

  static func == (first: Self, second: Self) -> Bool {
    first.comparisons.increment()
    return first.number == second.number
  }

  static func < (first: Self, second: Self) -> Bool { first.number < second.number }

  func hash(into hasher: inout Hasher) {
    if DispatchQueue.getSpecific(key: Self.mainKey) == true { hashesOnMainActor.increment() }
    hasher.combine(number)
  }
}

@MainActor @Suite("A query of a store") struct QueryTests {
  private func store(_ count: Int) async throws -> Store<Errand> {
    let store = try await Store<Errand>(storage: .memory())
    try await store.insert((0..<count).map { Errand(id: $0, rank: $0 % 10, place: "\($0 % 3)") })
    return store
  }

  @Test(
    "A change calls the predicate once per changed item, however many items exist",
    arguments: [100, 3_000])
  func predicateCalls(count: Int) async throws {
    let store = try await store(count)
    let calls = Counter()
    let query = store.query(
      where: { errand in
        calls.increment()
        return errand.rank > 3
      }, sortedBy: .by(\.rank))
    await query.itemsHaveLoaded()
    #expect(calls.count == count)
    for id in 0..<50 {
      try await store.insert(Errand(id: id, rank: 5))
      try await store.insert(Errand(id: count + id))
      try await store.update(String(id)) { $0.rank = 1 }
      try await store.remove(Errand(id: count + id))
    }
    #expect(calls.count == count + 150)
    // With 3,000 items, more than the main actor changes at once.
    try await store.insert((0..<count / 9).map { Errand(id: $0) })
    #expect(calls.count == count + 150 + count / 9)
  }

  @Test("The predicate of a released query is no longer called")
  func released() async throws {
    let store = try await store(100)
    let calls = Counter()
    var query: StoreQuery<Errand, Never>? = store.query(where: { _ in
      calls.increment()
      return true
    })
    #expect(query?.count == 100 && calls.count == 100)
    query = nil
    try await store.insert(Errand(id: 200))
    #expect(calls.count == 100)
  }

  @Test("Observers of a query are notified of changes in it, and of nothing else")
  func observation() async throws {
    let store = try await store(100)
    let query = store.query(where: { $0.rank == 5 }, sortedBy: .by(\.id), limit: 3)
    func changes(_ read: () -> Void, _ change: () async throws -> Void) async throws -> Int {
      let changes = Counter()
      withObservationTracking(read) { changes.increment() }
      try await change()
      return changes.count
    }
    let items = { _ = query.items.count }
    let count = { _ = query.totalCount }
    #expect(try await changes(items) { try await store.insert(Errand(id: 1, rank: 2)) } == 0)
    #expect(try await changes(items) { try await store.remove(Errand(id: 95)) } == 0)
    #expect(try await changes(count) { try await store.insert(Errand(id: 5, rank: 5, isDone: true)) } == 0)
    #expect(try await changes(items) { try await store.insert(Errand(id: 5, rank: 5)) } == 1)
    #expect(try await changes(items) { try await store.remove(Errand(id: 15)) } == 1)
    #expect(try await changes(count) { try await store.remove(Errand(id: 85)) } == 1)
    #expect(query.items.map(\.id) == [5, 25, 35] && query.totalCount == 7)
  }

  @Test("An observer of the items sees the changed query in the same turn")
  func sameTurn() async throws {
    let store = try await store(2_000)
    let query = store.query(where: { $0.rank == 5 })
    await query.itemsHaveLoaded()
    for ids in [5_000..<5_001, 5_001..<9_000] {
      let isSame = AsyncStream<Bool>.makeStream()
      withObservationTracking {
        _ = store.items
      } onChange: {
        Task { @MainActor in
          isSame.continuation.yield(query.items.elementsEqual(store.items.filter { $0.rank == 5 }))
        }
      }
      try await store.insert(ids.map { Errand(id: $0, rank: 5) })
      var results = isSame.stream.makeAsyncIterator()
      #expect(await results.next() == true)
    }
  }

  @Test("A retained copy of the items does not change", arguments: [10, 3_000])
  func retained(count: Int) async throws {
    let store = try await store(count)
    let query = store.query(sortedBy: .by(\.rank), sectionedBy: \.place)
    await query.itemsHaveLoaded()
    let (items, sections) = (query.items, query.sections)
    let (copy, ids) = (Array(items), sections.map { $0.items.map(\.id) })
    for id in 0..<10 { try await store.update(String(id)) { $0.rank = 100 } }
    try await store.removeAll()
    #expect(items.elementsEqual(copy) && sections.map { $0.items.map(\.id) } == ids)
    #expect(query.items.isEmpty && query.sections.isEmpty && query.totalCount == 0)
  }

  @Test("Foundation's comparators and closures can both be used to sort")
  func orders() async throws {
    let store = try await Store<Errand>(storage: .memory())
    try await store.insert(["item 10", "item 9", "Item 1"].enumerated().map { Errand(id: $0, place: $1) })
    func ids(_ order: QueryOrder<Errand>) -> [Int] { store.query(sortedBy: order).items.map(\.id) }
    #expect(ids(.using(KeyPathComparator(\.place))) == [2, 0, 1])
    #expect(ids(QueryOrder { $0.place.count < $1.place.count }) == [1, 2, 0])
    #expect(ids(.stored) == [0, 1, 2])
    #expect(ids(.stored.then(.by(\.place, .reverse))) == [1, 0, 2])
  }

  @Test("An inconsistent predicate and order leave no removed item in the query")
  func inconsistent() async throws {
    let store = try await Store<Errand>(storage: .memory())
    let calls = Counter()
    let query = store.query(
      where: { _ in
        calls.increment()
        return calls.count <= 150
      }, sortedBy: QueryOrder { _, _ in Bool.random() })
    try await store.insert(Errand.random(0..<100))
    for id in 0..<50 { try await store.insert(.random(id: id)) }
    #expect(query.count == 100)
    try await store.insert(.random(id: 0))
    #expect(query.count == 99 && !query.items.contains { $0.id == 0 })
    for id in 0..<100 { try await store.remove(Errand(id: id)) }
    #expect(query.items.isEmpty)
  }

  @Test("A query of many items is computed in the background, and isLoaded is false until then")
  func background() async throws {
    let store = try await store(5_000)
    let query = store.query(where: { $0.rank == 1 })
    #expect(!query.isLoaded && query.items.isEmpty)
    await query.itemsHaveLoaded()
    #expect(query.isLoaded && query.count == 500)
    #expect(store.query(limit: 0).items.isEmpty && store.query(limit: -1).count == 0)
  }

  @Test("Items whose section is not a number share the last section")
  func notANumber() async throws {
    let store = try await store(30)
    let query = store.query(sectionedBy: { $0.rank % 3 == 0 ? Double.nan : Double($0.rank) })
    func check() {
      let sections = query.sections
      #expect(sections.flatMap { $0.items.map(\.id) }.sorted() == store.items.map(\.id).sorted())
      #expect(sections.dropLast().allSatisfy { $0.id == $0.id } && sections.last?.id.isNaN == true)
      #expect(
        sections.dropLast().allSatisfy { section in section.items.allSatisfy { Double($0.rank) == section.id }
        })
    }
    check()
    for id in 0..<20 {
      try await store.insert(Errand(id: id, rank: id % 4))
      try await store.insert(Errand(id: 100 + id, rank: id % 4))
      check()
      try await store.remove(Errand(id: 29 - id))
      check()
    }
  }

  @Test("Removing the last item of a section compares only a few other sections")
  func sectionComparisons() async throws {
    let store = try await store(1_000)
    let (comparisons, hashes) = (Counter(), Counter())
    let query = store.query(sectionedBy: {
      CountedSection(number: $0.id, comparisons: comparisons, hashesOnMainActor: hashes)
    })
    await query.itemsHaveLoaded()
    let before = comparisons.count
    try await store.remove(Errand(id: 500))
    // The binary searches compare a few dozen sections.
    #expect(comparisons.count - before < 500)
    #expect(query.sections.map(\.id.number) == (0..<1_000).filter { $0 != 500 })
  }

  @Test("The sections of a query of many items are not rehashed on the main actor")
  func rehashing() async throws {
    DispatchQueue.main.setSpecific(key: CountedSection.mainKey, value: true)
    let store = try await Store<Errand>(storage: .memory())
    // Twice as many as are in the query, so that the store has spare capacity and the query has none.
    try await store.insert((0..<10_000).map { Errand(id: $0, isDone: $0 < 5_000) })
    let (comparisons, hashes) = (Counter(), Counter())
    let query = store.query(
      where: { !$0.isDone },
      sectionedBy: { CountedSection(number: $0.id, comparisons: comparisons, hashesOnMainActor: hashes) })
    await query.itemsHaveLoaded()
    for start in stride(from: 10_000, to: 11_500, by: 100) {
      let before = hashes.count
      try await store.insert((start..<start + 100).map { Errand(id: $0) })
      #expect(hashes.count - before < 2_000)
    }
    #expect(query.sections.map(\.id.number) == Array(5_000..<11_500))
  }

  @Test("The computation of a released query stops")
  func releasedEarly() async throws {
    final class Token: Sendable {}
    let store = try await store(20_000)
    let calls = Counter()
    let isReleased = DispatchSemaphore(value: 0)
    var token: Token? = Token()
    weak let computation = token
    var query: StoreQuery<Errand, Never>? = store.query(where: { [token] _ in
      withExtendedLifetime(token) { calls.increment() }
      if calls.count == 1 { isReleased.wait() }
      return true
    })
    try await wait { calls.count > 0 }
    #expect(query?.isLoaded == false)
    query = nil
    token = nil
    isReleased.signal()
    try await wait { computation == nil }
    #expect(calls.count < 20_000)
  }
}
