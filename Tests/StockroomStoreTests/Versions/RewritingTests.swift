import Foundation
import StockroomCore
import StockroomMemory
import StockroomSQLite
import StockroomStore
import StockroomTestSupport
import Testing

/// Rewriting beside failures, kills and the changes of others.
@MainActor @Suite(.timeLimit(.minutes(10))) struct RewritingTests {
  /// A note whose step kills the process when it has been taken a number of times.
  struct FatalNote: VersionedItem, Identifiable {
    nonisolated static let stepsToLive = Shared(Int.max)

    var id: String
    var text: String

    init(migrating previous: FirstNote) {
      let isOver = Self.stepsToLive.withLock { steps in
        steps -= 1
        return steps == 0
      }
      if isOver { kill(getpid(), SIGKILL) }
      (id, text) = (previous.id, previous.text)
    }
  }

  /// A note that cannot be encoded while its text is refused.
  struct PickyNote: VersionedItem, Identifiable {
    struct Refusal: Error {}
    enum CodingKeys: CodingKey { case id, text }
    nonisolated static let refused = Shared("")

    var id: String
    var text: String

    init(migrating previous: FirstNote) { (id, text) = (previous.id, previous.text) }

    func encode(to encoder: any Encoder) throws {
      if Self.refused.withLock({ $0 == text }) { throw Refusal() }
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(id, forKey: .id)
      try container.encode(text, forKey: .text)
    }
  }

  private let directory: TemporaryDirectory
  init() throws { directory = try TemporaryDirectory() }

  private static func openSQLite(_ path: String) throws -> SQLiteStorageEngine {
    try SQLiteStorageEngine(directory: FileManager.Directory(url: URL(filePath: path)), durability: .process)
  }

  private func openSQLite() throws -> SQLiteStorageEngine { try Self.openSQLite(directory.url.path) }

  private func writeFirstNotes(_ count: Int, to engine: some StorageEngine) async throws {
    try await ObjectStorage<FirstNote>(storage: engine)
      .store((0..<count).map { (key("\($0)"), FirstNote(id: "\($0)", text: "text \($0)")) })
  }

  @Test("A process that is killed in the middle of a batch leaves it undone, and the next one goes on")
  func killed() async throws {
    try await writeFirstNotes(2_500, to: openSQLite())
    await #expect(processExitsWith: .signal(SIGKILL)) { [path = directory.url.path as String] in
      let store = try await Store<FatalNote>(storage: Self.openSQLite(path))
      await MainActor.run {
        FatalNote.stepsToLive.withLock { $0 = 1_500 }
        store.startRewritingOldVersions()
      }
      try await store.oldVersionsHaveBeenRewritten()
    }
    let engine = try openSQLite()
    let left = try await versions(in: engine).values
    #expect(left.count { $0 == "2" } == 1_000 && left.count { $0 == "1" } == 1_500)

    let store = try await Store<FatalNote>(storage: engine)
    #expect(store.items.map(\.text) == (0..<2_500).map { "text \($0)" })
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    guard case .rewritten(1_500) = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    #expect(Set(try await versions(in: engine).values) == ["2"])
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
        // The older program may come too late.
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
    // What the older program has written behind the rewriting is for the next time.
    let next = try await Store<FourthNote>(storage: engine)
    next.startRewritingOldVersions()
    try await next.oldVersionsHaveBeenRewritten()
    #expect(Set(try await versions(in: engine).values) == ["4"] && next.items.count == count)
  }

  @Test(
    "A failed batch is reported, changes nothing, and is made up for by the next call",
    arguments: [true, false])
  func failure(hasTransactions: Bool) async throws {
    let base: any StorageEngine = hasTransactions ? MemoryStorageEngine() : MinimalEngine()
    try await writeFirstNotes(1_500, to: base)
    let engine = FailingStorageEngine(base)
    let store = try await Store<FourthNote>(storage: engine)
    let items = store.items
    engine.failCall(2, with: StorageError(.diskFull, "A fault of the test.")) {
      $0.method == .apply || $0.method == .withTransaction
    }
    store.startRewritingOldVersions()
    let error = await #expect(throws: StorageError.self) { try await store.oldVersionsHaveBeenRewritten() }
    #expect(error?.code == .diskFull)
    guard case .failed = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    #expect(store.items == items)
    #expect(try await versions(in: base).values.count { $0 == "4" } == 1_000)
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(Set(try await versions(in: base).values) == ["4"])
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

  @Test("Rewriting waits for loading, shows its progress, and ends where it is stopped")
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

  @Test("A store that is released during rewriting is gone after the batch")
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

  @Test("A closed engine ends rewriting with its error")
  func closed() async throws {
    let engine = try openSQLite()
    try await writeFirstNotes(10, to: engine)
    let store = try await Store<FourthNote>(storage: engine)
    try await engine.close()
    store.startRewritingOldVersions()
    let error = await #expect(throws: StorageError.self) { try await store.oldVersionsHaveBeenRewritten() }
    #expect(error?.code == .closed && store.items.count == 10)
  }

  @Test("What has become unreadable since loading is reported, and left alone")
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

  @Test("Rewriting fails if an item cannot be encoded, after all others have been rewritten")
  func encodingFails() async throws {
    let engine = MemoryStorageEngine()
    try await writeFirstNotes(1_500, to: engine)
    let store = try await Store<PickyNote>(storage: engine)
    PickyNote.refused.withLock { $0 = "text 7" }
    store.startRewritingOldVersions()
    let error = await #expect(throws: StorageError.self) { try await store.oldVersionsHaveBeenRewritten() }
    #expect(error?.code == .encodingFailed && error?.underlying is PickyNote.Refusal)
    #expect(try await Array(versions(in: engine).filter { $0.value == "1" }.keys) == ["7"])
    PickyNote.refused.withLock { $0 = "" }
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    guard case .rewritten(1) = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
  }

  @Test("Rewriting that is stopped can be started at once")
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
    guard case .rewritten(10) = store.rewritingState else {
      Issue.record("\(store.rewritingState)")
      return
    }
    #expect(Set(try await versions(in: engine).values) == ["2"])
  }

  @Test("What has been changed or removed since it was read is not counted as old")
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
