import Foundation
import StockroomCore
import StockroomMemory
import StockroomSQLite
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

/// Rewriting during calls and changes of others.
@MainActor @Suite(.timeLimit(.minutes(60))) struct RewritingTests {
  private let directory: TemporaryDirectory
  init() throws { directory = try TemporaryDirectory() }

  private func openSQLite() throws -> SQLiteStorageEngine {
    try SQLiteStorageEngine(directory: FileManager.Directory(url: directory.url), durability: .process)
  }

  @Test("No change that others make during rewriting is lost, in either version")
  func concurrentChanges() async throws {
    let count = 2_000
    try await ObjectStorage<ThirdNote>(storage: openSQLite())
      .store((0..<count).map { (key("\($0)"), ThirdNote(id: "\($0)", lines: [])) })
    let engine = try openSQLite()
    let store = try await Store<FourthNote>(storage: engine)
    let same = try await Store<FourthNote>(storage: openSQLite())
    let older = try await Store<ThirdNote>(storage: openSQLite())
    let changed = stride(from: 0, to: count, by: 40).map { "\($0)" }
    let expected = Shared(Dictionary(uniqueKeysWithValues: changed.map { ($0, Set<String>()) }))

    store.startRewritingOldVersions()
    await withThrowingTaskGroup { group in
      group.addTask {
        for id in changed {
          _ = try await older.update(id) { $0.lines.append("older") }
          expected.withLock { _ = $0[id]?.insert("older") }
        }
      }
      group.addTask {
        for id in changed.reversed() {
          try await same.update(id) { $0.lines.append("same") }
          expected.withLock { _ = $0[id]?.insert("same") }
        }
      }
      group.addTask {
        for id in changed {
          try await store.update(id) { $0.lines.append("own") }
          expected.withLock { _ = $0[id]?.insert("own") }
        }
      }
      while let result = await group.nextResult() {
        // The older program may be too late.
        if case .failure(let error) = result { #expect(newerVersion(error) != nil) }
      }
    }
    try await store.oldVersionsHaveBeenRewritten()
    let storage = ObjectStorage<FourthNote>(storage: engine)
    for (id, lines) in expected.withLock({ $0 }) {
      let note = try await storage.object(forKey: key(id))
      #expect(note.map { Set($0.lines) } == lines && note?.lines.count == lines.count)
      try await wait { store[id] == note && same[id] == note }
    }
    // Entries that the older program wrote after the rewriting are left to the next one.
    let next = try await Store<FourthNote>(storage: engine)
    next.startRewritingOldVersions()
    try await next.oldVersionsHaveBeenRewritten()
    #expect(Set(try await versions(in: engine).values) == ["4"] && next.items.count == count)
  }

  @Test("A batch ends after about 1 MiB, and the rest follows")
  func largeItems() async throws {
    let base = MinimalEngine()
    let text = String(repeating: "x", count: 600_000)
    try await ObjectStorage<FirstNote>(storage: base)
      .store((0..<5).map { (key("\($0)"), FirstNote(id: "\($0)", text: text)) })
    let engine = FailingStorageEngine(base)
    let store = try await Store<FourthNote>(storage: engine)
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(engine.calls.filter(\.isWrite).map(\.keys.count) == [2, 2, 1])
    #expect(Set(try await versions(in: base).values) == ["4"])
  }

  @Test("Rewriting waits for the load, reports its progress, and ends when stopped")
  func stops() async throws {
    let base = MemoryStorageEngine()
    try await writeFirstNotes(3_500, to: base)
    let engine = FailingStorageEngine(base)
    let store = Store<FourthNote>(loadingInBackground: engine)
    engine.hold { $0.method == .withTransaction }
    store.startRewritingOldVersions()
    try await engine.waitForHeldCalls()
    guard case .rewriting(0, _) = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    store.stopRewritingOldVersions()
    engine.release()
    try await store.oldVersionsHaveBeenRewritten()
    guard case .notStarted = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    #expect(try await versions(in: base).values.count { $0 == "4" } == 1_000)

    store.startRewritingOldVersions()
    var seen: Set<Int> = []
    try await wait {
      if case .rewriting(let completed, let total) = store.rewritingState, total == 2_500 {
        seen.insert(completed)
      }
      if case .rewritten = store.rewritingState { return true }
      return false
    }
    #expect(seen.isSubset(of: [0, 1_000, 2_000, 2_500]))
    #expect(Set(try await versions(in: base).values) == ["4"])
  }

  @Test("A store that is released during rewriting is deallocated after the batch")
  func released() async throws {
    let base = MemoryStorageEngine()
    try await writeFirstNotes(2_500, to: base)
    let engine = FailingStorageEngine(base)
    var store: Store<FourthNote>? = try await Store<FourthNote>(storage: engine)
    weak let weakStore = store
    engine.hold { $0.method == .withTransaction }
    store?.startRewritingOldVersions()
    try await engine.waitForHeldCalls()
    store = nil
    engine.release()
    try await wait { weakStore == nil }
    let versions = try await versions(in: base).values
    #expect(versions.count { $0 == "4" } < 2_500)
  }

  @Test("An entry that became unreadable after the load is reported and left unchanged")
  func unreadable() async throws {
    let engine = MinimalEngine()
    try await writeFirstNotes(3, to: engine)
    let store = try await Store<FourthNote>(storage: engine)
    let refused = try JSONEncoder().encode(FirstNote(id: "1", text: "refused"))
    try await engine.write(refused, key: key("1"))
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    try await wait { store.unreadableEntries.map(\.key.value) == ["1"] }
    #expect(try await engine.read(key: key("1")) == refused)
    #expect(store.items.map(\.id) == ["0", "2"])
  }

  @Test("Stopped rewriting can be restarted immediately")
  func restart() async throws {
    let engine = MemoryStorageEngine()
    try await writeFirstNotes(10, to: engine)
    let store = try await Store<SecondNote>(storage: engine)
    for _ in 0..<3 {
      store.startRewritingOldVersions()
      store.stopRewritingOldVersions()
    }
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.rewritingState.rewrittenCount == 10)
    #expect(Set(try await versions(in: engine).values) == ["2"])
  }

  @Test("An entry that was changed or removed after it was read is not counted as old")
  func changedSince() async throws {
    let engine = MemoryStorageEngine()
    try await writeFirstNotes(5, to: engine)
    let store = try await Store<SecondNote>(storage: engine)
    try await store.update("0") { $0.isDone = true }
    try await store.remove(SecondNote(id: "1", text: ""))
    try await engine.remove(key: key("2"))
    try await wait { store.items.count == 3 }
    store.startRewritingOldVersions()
    guard case .rewriting(completed: 0, total: 2) = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    try await store.oldVersionsHaveBeenRewritten()
  }
}
