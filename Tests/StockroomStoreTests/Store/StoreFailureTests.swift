import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

@MainActor @Suite("A store whose engine fails") struct StoreFailureTests {
  /// Calls of every kind in sequence, each with its effect on an array.
  private static let scenario:
    [(call: @MainActor (Store<Note>) async throws -> Void, model: (inout [Note]) -> Void)] =
      [
        ({ try await $0.insert(Note.numbered(0..<20)) }, { $0 = Note.numbered(0..<20) }),
        ({ try await $0.insert(Note(id: "a")) }, { $0.append(Note(id: "a")) }),
        ({ try await $0.insert(Note(id: "a", text: "new")) }, { $0[$0.count - 1].text = "new" }),
        ({ try await $0.remove(Note(id: "note 3")) }, { $0.removeAll { $0.id == "note 3" } }),
        (
          { try await $0.remove(Note.numbered(5..<8)) },
          { $0.removeAll { Note.numbered(5..<8).map(\.id).contains($0.id) } }
        ),
        (
          { try await $0.remove(Note(id: "a")).insert(Note(id: "b")).insert(Note(id: "a")).run() },
          {
            $0.removeAll { $0.id == "a" }
            $0 += [Note(id: "b"), Note(id: "a")]
          }
        ),
        ({ try await $0.removeAll().insert(Note.numbered(3..<9)).run() }, { $0 = Note.numbered(3..<9) }),
        (
          { try await $0.insert(Note(id: String(repeating: "x", count: 600))) },
          {
            $0.append(Note(id: String(repeating: "x", count: 600)))
          }
        ),
        ({ try await $0.removeAll() }, { $0 = [] }),
        ({ try await $0.insert(Note(id: "z")) }, { $0 = [Note(id: "z")] }),
      ]

  @Test(
    "After each failure the items agree with the engine, and the next call succeeds",
    arguments: AnyEngine.all, [FailingStorageEngine.Timing.beforehand, .afterwards])
  func everyCall(_ kind: AnyEngine, _ moment: FailingStorageEngine.Timing) async throws {
    for code in [StorageError.Code.io, .diskFull] where moment == .beforehand || code == .io {
      var number = 1
      while true {
        let directory = try TemporaryDirectory()
        let base = try await kind.open(directory)
        let engine = FailingStorageEngine(base)
        let store = try await Store<Note>(storage: engine)
        engine.failCall(number, with: StorageError(code, "As told."), moment)
        var failures = 0
        for (step, (call, model)) in Self.scenario.enumerated() {
          var expected = store.items
          do {
            try await call(store)
            model(&expected)
          } catch {
            failures += 1
            #expect((error as? StorageError)?.code == code)
            if moment == .afterwards, case let stored = try await notes(in: base), stored != expected {
              model(&expected)
            }
          }
          try #require(store.items == expected, "call \(number), step \(step)")
          try #require(try await notes(in: base) == expected, "call \(number), step \(step)")
          if failures == 1, step + 1 < Self.scenario.count {
            // The next call succeeds: here, the same call again.
            try await call(store)
            failures += 1
            try #require(try await agree(store, base))
          }
        }
        try await base.close()
        if failures == 0 { break }
        number += 1
      }
      #expect(number > Self.scenario.count)
    }
  }

  @Test(
    "While the engine fails nothing changes; afterwards every call succeeds",
    arguments: AnyEngine.all)
  func outage(_ kind: AnyEngine) async throws {
    let directory = try TemporaryDirectory()
    let base = try await kind.open(directory)
    let engine = FailingStorageEngine(base)
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note.numbered(0..<5))
    engine.failEveryCall()
    for _ in 0..<3 {
      await #expect(throws: StorageError.self) { try await store.insert(Note(id: "x")) }
      await #expect(throws: StorageError.self) { try await store.removeAll().insert(Note(id: "x")).run() }
      #expect(store.items == Note.numbered(0..<5))
    }
    guard case .failed = store.loadingState else {
      Issue.record("The state is \(store.loadingState)"); return
    }
    engine.clearFaults()
    try await store.insert(Note(id: "x"))
    #expect(store.items == Note.numbered(0..<5) + [Note(id: "x")])
    guard case .loaded = store.loadingState else {
      Issue.record("The state is \(store.loadingState)"); return
    }
    #expect(try await agree(store, base))
    try await base.close()
  }

  @Test(
    "A batch that fails with .locked or .outcomeUnknown is not retried call by call"
  )
  func locked() async throws {
    for code in [StorageError.Code.locked, .closed, .unavailable, .outcomeUnknown] {
      let base = MemoryStorageEngine()
      let engine = FailingStorageEngine(base)
      let store = try await Store<Note>(storage: engine)
      engine.hold()
      let first = Task { try await store.insert(Note(id: "first")) }
      try await engine.waitForHeldCalls()
      let others = (0..<4).map { number in Task { try await store.insert(Note(id: "\(number)")) } }
      for _ in 0..<20 { await Task.yield() }
      engine.failEveryCall(with: StorageError(code, "As told."))
      engine.resetCalls()
      engine.release()
      for task in [first] + others {
        // The first call had already been sent when it was held.
        guard case .failure(let error) = await task.result else { continue }
        #expect((error as? StorageError)?.code == code)
      }
      engine.clearFaults()
      #expect(engine.calls.count(where: \.isWrite) == 1)
      try await store.insert(Note(id: "x"))
      #expect(try await agree(store, base))
    }
  }

  @Test("Items appear only once the engine has acknowledged them")
  func acknowledgement() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let store = try await Store<Note>(storage: engine)
    engine.hold()
    let insertion = Task { try await store.insert(Note(id: "a")) }
    try await engine.waitForHeldCalls()
    #expect(store.items.isEmpty)
    engine.release()
    try await insertion.value
    #expect(store.items.count == 1)
  }

  @Test("Calls made while the engine is busy are combined into one batch")
  func oneRequest() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let store = try await Store<Note>(storage: engine)
    engine.hold()
    let first = Task { try await store.insert(Note(id: "first")) }
    try await engine.waitForHeldCalls()
    engine.resetCalls()
    var others: [Task<Void, any Error>] = []
    for number in 0..<100 { others.append(Task { try await store.insert(Note(id: "\(number)")) }) }
    let last = Task { try await store.insert(Note(id: "last")) }
    for _ in 0..<10 { await Task.yield() }
    engine.release()
    try await first.value
    for other in others { try await other.value }
    try await last.value
    #expect(engine.callCount < 20)
    let numbers: [String] = (0..<100).map { "\($0)" }
    #expect(store.items.map(\.id) == ["first"] + numbers + ["last"])
  }

  @Test("A chain is one batch in the engine, and so is a call with many items")
  func requests() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let store = try await Store<Note>(storage: engine)
    engine.resetCalls()
    try await store.insert(Note.numbered(0..<1_000))
    try await store.remove(Note.numbered(0..<500))
    try await store.removeAll().insert(Note.numbered(0..<1_000)).remove(Note(id: "note 7")).run()
    #expect(engine.callCount == 3)
    try await store.insert([])
    try await store.remove([])
    #expect(engine.callCount == 3)
  }

  @Test(
    "After a batch and then its single calls have failed, the items agree with the engine")
  func failedTogether() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    let store = try await Store<Note>(storage: engine)
    engine.hold()
    let first = Task { try await store.insert(Note(id: "first")) }
    try await engine.waitForHeldCalls()
    let others = (0..<4).map { number in Task { try await store.insert(Note(id: "\(number)")) } }
    for _ in 0..<20 { await Task.yield() }
    // All of them are stored without an acknowledgement; then there is no space to repeat one of them.
    engine.failCall(with: StorageError(.io, "As told."), .afterwards) { $0.keys.count > 1 }
    engine.failCall(with: StorageError(.diskFull, "As told.")) { $0.keys == [CacheKey(verbatim: "2")] }
    engine.release()
    try await first.value
    for (number, task) in others.enumerated() {
      if number == 2 {
        let error = await #expect(throws: StorageError.self) { try await task.value }
        #expect(error?.code == .diskFull)
      } else {
        try await task.value
      }
    }
    #expect(try await agree(store, base))
  }

  @Test("After a partial batch of an engine without atomic batches the store agrees with it")
  func halfWay() async throws {
    let engine = PartlyFailingEngine()
    let store = try await Store<Note>(storage: engine)
    try await store.insert(Note.numbered(0..<10))
    let error = await #expect(throws: StorageError.self) { try await store.removeAll() }
    #expect(error?.code == .readOnly)
    #expect(store.items.contains(Note(id: "note 3")))
    #expect(Set(store.items.map(\.id)) == Set(try await notes(in: engine).map(\.id)))
    try await store.insert(Note(id: "x"))
    #expect(Set(store.items.map(\.id)) == Set(try await notes(in: engine).map(\.id)))
  }
}

/// An engine with six methods that fails to remove one of its entries.
private actor PartlyFailingEngine: StorageEngine {
  private var entries: [CacheKey: StorageEntry] = [:]

  func write(_ data: Data, key: CacheKey) {
    let createdAt = entries[key]?.createdAt ?? .now
    entries[key] = StorageEntry(key: key, data: data, createdAt: createdAt, updatedAt: .now)
  }

  func remove(key: CacheKey) throws {
    if key.value == "note 3" { throw StorageError(.readOnly, "This one stays.") }
    entries[key] = nil
  }

  func read(key: CacheKey) -> Data? { entries[key]?.data }
  func allKeys() -> [CacheKey] { entries.keys.sorted() }
  func createdAt(key: CacheKey) -> Date? { entries[key]?.createdAt }
  func updatedAt(key: CacheKey) -> Date? { entries[key]?.updatedAt }
}
