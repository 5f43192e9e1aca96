import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@MainActor @Suite("Contents of queries under random changes") struct QueryPropertyTests {
  /// Compares the queries as soon as the items have changed.
  @MainActor private final class Watcher {
    private let queries: QueriesWithModels
    private(set) var looks = 0
    private(set) var wereRight = true

    init(_ queries: QueriesWithModels) {
      self.queries = queries
      watch()
    }

    private func watch() {
      withObservationTracking {
        _ = queries.store.items
      } onChange: {
        Task { @MainActor [weak self] in
          guard let self else { return }
          looks += 1
          if !queries.areRight() { wereRight = false }
          watch()
        }
      }
    }
  }

  @Test("At any time a query shows the filtered and sorted items", arguments: [40, 1_500])
  func model(count: Int) async throws {
    let store = try await Store<Errand>(storage: .memory())
    try await store.insert(Errand.random(0..<count))
    let queries = QueriesWithModels(store)
    let watcher = Watcher(queries)
    for step in 0..<(count < 1_000 ? 200 : 40) {
      try await store.changeAtRandom(below: count, most: step % 5 == 0 ? count : 6)
      try #require(queries.areRight(), "\(step)")
    }
    await queries.itemsHaveLoaded()
    #expect(queries.areLoaded && queries.areRight())
    #expect(watcher.looks > 0 && watcher.wereRight)
  }

  @Test("Queries follow changes of other stores on the same engine", .timeLimit(.minutes(60)))
  func others() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Errand>(storage: engine)
    let other = try await Store<Errand>(storage: engine)
    let queries = [QueriesWithModels(store), QueriesWithModels(other)]
    let watchers = queries.map(Watcher.init)
    async let done: Void = { for _ in 0..<50 { try await other.changeAtRandom(below: 60, most: 30) } }()
    for _ in 0..<50 { try await store.changeAtRandom(below: 60, most: 30) }
    try await done
    let fresh = try await Store<Errand>(storage: engine)
    while store.items != fresh.items || other.items != fresh.items { await Task.yield() }
    #expect(queries.allSatisfy { $0.areLoaded && $0.areRight() })
    #expect(watchers.allSatisfy { $0.looks > 0 && $0.wereRight })
  }

  @Test("Queries created during changes converge to the same contents")
  func created() async throws {
    let store = try await Store<Errand>(storage: .memory())
    try await store.insert(Errand.random(0..<1_500))
    async let done: Void = {
      for _ in 0..<8 {
        try await store.changeAtRandom(below: 1_500, most: 1_000)
        try await store.insert(Errand.random(0..<1_200))
      }
    }()
    var queries: [QueriesWithModels] = []
    for _ in 0..<4 {
      queries.append(QueriesWithModels(store))
      for _ in 0..<30 { await Task.yield() }
      try #require(queries.allSatisfy { $0.areRight() })
    }
    try await done
    for queries in queries {
      await queries.itemsHaveLoaded()
      try #require(queries.areRight())
    }
  }

  @Test("Queries of a loading store show the items as soon as the store does")
  func loading() async throws {
    let engine = MemoryStorageEngine()
    try await Store<Errand>(storage: engine).insert(Errand.random(0..<3_000))
    let store = Store<Errand>(loadingInBackground: engine)
    let queries = QueriesWithModels(store)
    #expect(queries.areLoaded && queries.areRight())
    let watcher = Watcher(queries)
    try await store.itemsHaveLoaded()
    #expect(queries.byPlace.count == 3_000 && queries.areRight())
    #expect(watcher.looks > 0 && watcher.wereRight)
  }
}
