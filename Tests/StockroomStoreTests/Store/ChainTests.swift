import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@MainActor @Suite("A chain of changes") struct ChainTests {
  @Test("The steps of a chain are applied in order, as one change", arguments: AnyEngine.all)
  func order(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let engine = try await kind.open(directory)
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note.numbered(0..<3))

    try await store.removeAll().insert(Note.numbered(1..<4)).run()
    #expect(store.items == Note.numbered(1..<4))
    try await store.remove(Note(id: "note 1")).insert(Note.numbered(4..<6)).run()
    #expect(store.items == Note.numbered(2..<6))
    try await store.insert(Note(id: "x")).removeAll().insert([Note(id: "y"), Note(id: "z")]).remove(
      Note(id: "y")
    )
    .insert(Note(id: "y")).run()
    #expect(store.items.map(\.id) == ["z", "y"])
    #expect(try await agree(store, engine))
    try await store.insert(Note(id: "a", text: "1")).insert(Note(id: "b")).insert(Note(id: "a", text: "2"))
      .run()
    #expect(store.items.map(\.id) == ["z", "y", "a", "b"])
    #expect(try await agree(store, engine))
    try await engine.close()
  }

  @Test("A chain has no effect without run()")
  func notRun() async throws {
    let store = try await Store<Note>(storage: .memory())
    try await store.insert(Note(id: "a"))
    let begun: Store<Note>.Operation = try await store.removeAll()
    #expect(store.items.map(\.id) == ["a"])
    try await begun.run()
    #expect(store.items.isEmpty)
  }

  #if DEBUG
    @Test("Releasing a chain without run() fails an assertion that names the mistake", .ownThreads)
    func forgotten() async throws {
      let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
        let store = try await Store<Note>(storage: .memory())
        // A local variable, like a closure whose result is ignored. If it were a task's result, the process
        // might exit before its release.
        var result: Store<Note>.Operation? = try await store.removeAll().insert(Note(id: "a"))
        #expect(result != nil)
        result = nil
      }
      let message = String(decoding: result?.standardErrorContent ?? [], as: UTF8.self)
      #expect(message.contains("released without run()"))
    }
  #endif

  @Test("Releasing a chain is not an error if its continuation threw or its task was cancelled")
  func droppedForAReason() async throws {
    struct Failure: Error {}
    func fetch() throws -> [Note] { throw Failure() }
    let store = try await Store<Note>(storage: .memory())
    try await store.insert(Note(id: "a"))
    await #expect(throws: Failure.self) { try await store.removeAll().insert(fetch()).run() }
    let task = Task {
      let chain = try await store.removeAll().insert(Note(id: "b"))
      withUnsafeCurrentTask { $0?.cancel() }
      try Task.checkCancellation()
      try await chain.run()
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(store.items.map(\.id) == ["a"])
  }

  @Test("A chain of 20,000 changes applies all of them")
  func long() async throws {
    let store = try await Store<Note>(storage: .memory())
    var chain: Store<Note>.Operation = try await store.insert(Note(id: "0"))
    for number in 1..<20_000 { chain = chain.insert(Note(id: "\(number)")) }
    try await chain.run()
    #expect(store.items.map(\.id) == (0..<20_000).map(String.init))
  }

  @Test("The same call takes effect at once if nothing is chained to it")
  func atOnce() async throws {
    let store = try await Store<Note>(storage: .memory())
    try await store.insert([Note(id: "a"), Note(id: "b"), Note(id: "c")])
    try await store.remove(Note(id: "a"))
    #expect(store.items.map(\.id) == ["b", "c"])
    try await store.remove([Note(id: "b")])
    try await store.removeAll()
    #expect(store.items.isEmpty)
  }

  @Test("A second run() does nothing, even during the first")
  func twice() async throws {
    let store = try await Store<Note>(storage: .memory())
    let chain = try await store.removeAll().insert(Note(id: "a"))
    async let first: Void = chain.run()
    async let second: Void = chain.run()
    _ = try await (first, second)
    try await store.insert(Note(id: "b"))
    try await chain.run()
    #expect(store.items.map(\.id) == ["a", "b"])
  }

  @Test("A chain can be continued in two ways")
  func branches() async throws {
    let store = try await Store<Note>(storage: .memory())
    let start: Store<Note>.Operation = try await store.insert(Note(id: "a"))
    let one = start.insert(Note(id: "b"))
    let other = start.insert(Note(id: "c"))
    try await one.run()
    #expect(store.items.map(\.id) == ["a", "b"])
    try await other.run()
    #expect(store.items.map(\.id) == ["a", "b", "c"])
  }

  @Test("A failed chain has changed nothing and can be run again")
  func failed() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Measurement>(storage: engine)
    try await store.insert(Measurement(id: "a", value: 1))
    let chain = try await store.removeAll().insert(Measurement(id: "b", value: .nan))
    await #expect(throws: StorageError.self) { try await chain.run() }
    #expect(store.items.map(\.id) == ["a"])
    await #expect(throws: StorageError.self) { try await chain.run() }
    #expect(try await engine.allKeys() == [CacheKey(verbatim: "a")])
  }
}

/// An item that can fail to encode.
struct Measurement: Codable, Sendable, Identifiable {
  var id: String
  var value: Double
}
