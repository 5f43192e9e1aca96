import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@MainActor @Suite("What queries show, for random changes") struct QueryPropertyTests {
  /// Looks at the queries whenever the main actor is free, until it is cancelled. Returns whether they were right.
  private func watch(_ queries: QueriesWithModels) -> Task<Bool, Never> {
    Task {
      while !Task.isCancelled {
        if !queries.areRight() { return false }
        await Task.yield()
      }
      return true
    }
  }

  @Test("Queries are at any moment what filtering and sorting the items gives", arguments: [40, 3_000])
  func model(count: Int) async throws {
    let store = try await Store<Errand>(storage: .memory())
    try await store.insert(Errand.random(0..<count))
    let queries = QueriesWithModels(store)
    let watcher = watch(queries)
    for step in 0..<(count < 1_000 ? 300 : 60) {
      try await store.changeAtRandom(below: count, most: step % 5 == 0 ? count : 6)
      try #require(queries.areRight(), "\(step)")
    }
    await queries.itemsHaveLoaded()
    #expect(queries.areLoaded && queries.areRight())
    watcher.cancel()
    #expect(await watcher.value)
  }

  @Test("Queries follow what other stores in front of the same engine change", .timeLimit(.minutes(10)))
  func others() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Errand>(storage: engine)
    let other = try await Store<Errand>(storage: engine)
    let queries = [QueriesWithModels(store), QueriesWithModels(other)]
    let watchers = queries.map(watch)
    async let done: Void = { for _ in 0..<100 { try await other.changeAtRandom(below: 60, most: 30) } }()
    for _ in 0..<100 { try await store.changeAtRandom(below: 60, most: 30) }
    try await done
    let fresh = try await Store<Errand>(storage: engine)
    while store.items != fresh.items || other.items != fresh.items { await Task.yield() }
    #expect(queries.allSatisfy { $0.areLoaded && $0.areRight() })
    for watcher in watchers {
      watcher.cancel()
      #expect(await watcher.value)
    }
  }

  @Test("Queries that are created during changes show the same in the end")
  func created() async throws {
    let store = try await Store<Errand>(storage: .memory())
    try await store.insert(Errand.random(0..<3_000))
    async let done: Void = {
      for _ in 0..<30 {
        try await store.changeAtRandom(below: 3_000, most: 2_000)
        try await store.insert(Errand.random(0..<2_000))
      }
    }()
    var queries: [QueriesWithModels] = []
    for _ in 0..<20 {
      queries.append(QueriesWithModels(store))
      for _ in 0..<20 {
        await Task.yield()
        let last = queries[queries.count - 1]
        try #require(last.areRight())
      }
    }
    try await done
    for queries in queries {
      await queries.itemsHaveLoaded()
      try #require(queries.areRight())
    }
  }

  @Test("Queries of a store that is loading show the items in the moment in which the store does")
  func loading() async throws {
    let engine = MemoryStorageEngine()
    try await Store<Errand>(storage: engine).insert(Errand.random(0..<3_000))
    let store = Store<Errand>(loadingInBackground: engine)
    let queries = QueriesWithModels(store)
    #expect(queries.areLoaded && queries.areRight())
    let watcher = watch(queries)
    try await store.itemsHaveLoaded()
    #expect(queries.byPlace.count == 3_000 && queries.areRight())
    watcher.cancel()
    #expect(await watcher.value)
  }
}
