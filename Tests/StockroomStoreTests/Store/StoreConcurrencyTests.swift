import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

@MainActor @Suite("A store used by concurrent tasks") struct StoreConcurrencyTests {
  @Test("A hundred concurrent inserts are a hundred items")
  func hundred() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    await withTaskGroup { group in
      for number in 0..<100 {
        group.addTask { await #expect(throws: Never.self) { try await store.insert(Note(id: "\(number)")) } }
      }
    }
    #expect(store.items.count == 100)
    #expect(try await agree(store, engine))
  }

  @Test(
    "A thousand tasks insert, replace and remove: items, engine and a new store agree",
    arguments: AnyEngine.all)
  func thousand(_ kind: AnyEngine) async throws {
    let rounds = ProcessInfo.processInfo.environment["STOCKROOM_ROUNDS"].flatMap { Int($0) } ?? 2
    for _ in 0..<rounds {
      let directory = try TemporaryDirectory()
      let engine = try await kind.open(directory)
      let store = try await Store<Note>(storage: engine)
      try await store.insert(Note.numbered(0..<50))
      try await withThrowingTaskGroup { group in
        for task in 0..<1_000 {
          group.addTask {
            let note = Note(id: "note \(task % 130)", text: "\(task)")
            switch task % 10 {
            case 0..<3: try await store.remove(note)
            case 3: try await store.insert([note, Note(id: "task \(task)")])
            case 4: try await store.remove(note).insert(Note(id: "chain \(task)")).insert(note).run()
            case 5 where task % 500 == 5: try await store.removeAll()
            default: try await store.insert(note)
            }
          }
        }
        try await group.waitForAll()
      }
      #expect(Set(store.items.map(\.id)).count == store.items.count)
      #expect(try await agree(store, engine))
      try await engine.close()
    }
  }

  #if DEBUG
    @Test("No update of a preview is lost")
    func previewUpdates() async throws {
      struct Counter: Codable, Sendable, Identifiable {
        var id = "a"
        var count = 0
      }
      let store = Store.previewStore(items: [Counter()])
      try await withThrowingTaskGroup { group in
        for _ in 0..<20 { group.addTask { try await store.update("a") { $0.count += 1 } } }
        try await group.waitForAll()
      }
      #expect(store["a"]?.count == 20)
    }

    @Test("Changes of a preview keep the identifier, and send no event if they leave the item as it was")
    func previewModifications() async throws {
      let store = Store.previewStore(items: [Note(id: "a")])
      var events = store.events.makeAsyncIterator()
      #expect(await events.next()?.items.count == 1)
      await #expect { try await store.update("a") { $0.id = "b" } } throws: {
        ($0 as? StorageError)?.code == .unsupported
      }
      await #expect {
        try await store.modify("a") { $0?.id = "b" }
      } throws: { ($0 as? StorageError)?.code == .unsupported }
      #expect(store.items == [Note(id: "a")])
      try await store.modify("a") { _ in }
      try await store.insert(Note(id: "c"))
      #expect(await events.next()?.items == [Note(id: "c")])
    }
  #endif

  @Test("Calls take effect in the order in which they were made")
  func order() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    var tasks: [Task<Void, any Error>] = []
    for number in 0..<200 {
      tasks.append(Task { try await store.insert(Note(id: "\(number)")) })
      tasks.append(Task { try await store.insert(Note(id: "last", text: "\(number)")) })
    }
    for task in tasks { try await task.value }
    let numbers: [String] = (0..<200).map { "\($0)" }
    #expect(store.items.map(\.id).filter { $0 != "last" } == numbers)
    #expect(store.items.first { $0.id == "last" }?.text == "199")
    #expect(try await agree(store, engine))
  }

  @Test("A failed call does not fail concurrent calls")
  func oneFails() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Measurement>(storage: engine)
    await withTaskGroup { group in
      for number in 0..<100 {
        group.addTask {
          let isWrong = number % 10 == 0
          let item = Measurement(id: "\(number)", value: isWrong ? .infinity : 1)
          do {
            try await store.insert(item)
            #expect(!isWrong)
          } catch {
            #expect(isWrong)
            #expect((error as? StorageError)?.code == .encodingFailed)
          }
        }
      }
    }
    #expect(store.items.count == 90)
    #expect(try await engine.keyCount() == 90)
  }

  @Test("A cancelled call takes effect completely or not at all")
  func cancelled() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    var tasks: [Task<Bool, any Error>] = []
    for number in 0..<300 {
      let task = Task {
        do {
          try await store.insert([Note(id: "a \(number)"), Note(id: "b \(number)")])
          return true
        } catch is CancellationError {
          return false
        }
      }
      if number % 3 == 0 { task.cancel() }
      if number % 3 == 1 { Task { task.cancel() } }
      tasks.append(task)
    }
    for (number, task) in tasks.enumerated() {
      let isDone = try await task.value
      #expect(store.items.contains { $0.id == "a \(number)" } == isDone)
      #expect(store.items.contains { $0.id == "b \(number)" } == isDone)
    }
    #expect(try await agree(store, engine))
  }

  @Test("A released store completes its pending changes")
  func released() async throws {
    let engine = MemoryStorageEngine()
    let task = Task { @MainActor in
      let store = Store<Note>(loadingInBackground: engine)
      try await store.insert(Note.numbered(0..<1_000))
    }
    try await task.value
    #expect(try await engine.keyCount() == 1_000)

    weak var gone: Store<Note>?
    do {
      let store = try await Store<Note>(storage: engine)
      gone = store
      #expect(store.items.count == 1_000)
    }
    #expect(gone == nil)
  }
}
