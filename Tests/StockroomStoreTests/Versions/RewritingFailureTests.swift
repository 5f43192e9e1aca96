import Foundation
import StockroomCore
import StockroomMemory
import StockroomSQLite
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

/// Rewriting that fails and is continued by the next call.
@MainActor @Suite(.timeLimit(.minutes(60))) struct RewritingFailureTests {
  /// A note whose migration kills the process after a number of calls.
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

  /// A note that cannot be encoded with certain texts.
  struct PartlyUnencodableNote: VersionedItem, Identifiable {
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

  @Test(
    "A process killed in the middle of a batch leaves the batch undone, and the next process continues",
    .ownThreads)
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
    #expect(store.rewritingState.rewrittenCount == 1_500)
    #expect(Set(try await versions(in: engine).values) == ["2"])
  }

  @Test(
    "A failed batch is reported, changes nothing, and is repeated by the next call",
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

  @Test("Rewriting fails if an item cannot be encoded, after all other items have been rewritten")
  func encodingFails() async throws {
    let engine = MemoryStorageEngine()
    try await writeFirstNotes(1_500, to: engine)
    let store = try await Store<PartlyUnencodableNote>(storage: engine)
    PartlyUnencodableNote.refused.withLock { $0 = "text 7" }
    store.startRewritingOldVersions()
    let error = await #expect(throws: StorageError.self) { try await store.oldVersionsHaveBeenRewritten() }
    #expect(error?.code == .encodingFailed && error?.underlying is PartlyUnencodableNote.Refusal)
    #expect(try await Array(versions(in: engine).filter { $0.value == "1" }.keys) == ["7"])
    PartlyUnencodableNote.refused.withLock { $0 = "" }
    store.startRewritingOldVersions()
    try await store.oldVersionsHaveBeenRewritten()
    #expect(store.rewritingState.rewrittenCount == 1)
  }
}
