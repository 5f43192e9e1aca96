import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTransfer
import TestFixtures
import Testing

@Suite("Dumps of engines that have transactions and no snapshots") struct TransactionDumpTests {
  @Test("What is written between the reading and the transaction has its times and its place in the archive")
  func changedMeanwhile() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let engine = ChangedOnceRead { engine in
      try await engine.write([(key("z"), Data("new".utf8)), (key("y"), Data("new".utf8))])
      try await engine.write(Data("overwritten".utf8), key: key("b"))
      try await engine.remove(keys: [key("a"), key("c")])
      try await engine.write(Data("again".utf8), key: key("a"))
    }
    for name in ["a", "b", "c", "d"] { try await engine.write(Data(name.utf8), key: key(name)) }
    #expect(try await engine.dump(to: archive).isSnapshot)
    let restored = MemoryStorageEngine()
    try await restored.restore(from: archive)
    let entries = try await restored.readAllEntries()
    #expect(entries.map(\.key) == [key("b"), key("d"), key("z"), key("y"), key("a")])
    #expect(try await engine.base.readAllEntries() == entries)
  }

  @Test(
    "What is written again with the same value before the transaction has its times and its place in the archive"
  )
  func rewrittenMeanwhile() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let engine = ChangedOnceRead { engine in
      // The second write of a value that an engine has is later than the first one.
      let before = Date.now
      while Date.now <= before {}
      try await engine.remove(key: key("a"))
      for name in ["a", "b"] { try await engine.write(Data(name.utf8), key: key(name)) }
    }
    for name in ["a", "b", "c"] { try await engine.write(Data(name.utf8), key: key(name)) }
    let written = try await engine.base.readAllEntries()
    #expect(try await engine.dump(to: archive).isSnapshot)
    let restored = MemoryStorageEngine()
    try await restored.restore(from: archive)
    let entries = try await restored.readAllEntries()
    #expect(entries.map(\.key) == [key("b"), key("c"), key("a")])
    #expect(try await engine.base.readAllEntries() == entries)
    #expect(written[1].createdAt == entries[0].createdAt && written[1].updatedAt < entries[0].updatedAt)
  }

  @Test("What is written while the transaction runs, and is read by it, has its time in the archive")
  func changedDuringTransaction() async throws {
    let place = try TemporaryDirectory()
    let archive = place.appending("archive")
    let engine = ChangedDuringTransaction()
    try await engine.write(Data("old".utf8), key: ChangedDuringTransaction.key)
    #expect(try await engine.dump(to: archive).isSnapshot)
    let restored = MemoryStorageEngine()
    try await restored.restore(from: archive)
    let entries = try await restored.readAllEntries()
    #expect(entries.map(\.data) == [ChangedDuringTransaction.value])
    #expect(entries.first?.updatedAt == engine.changedAt.date.withLock { $0 })
  }
}

/// An engine that is changed once all entries have been read.
private struct ChangedOnceRead: StorageLayer {
  let base = MemoryStorageEngine()
  let change: @Sendable (MemoryStorageEngine) async throws -> Void

  var capabilities: EngineCapabilities { base.capabilities.subtracting(.snapshotReads) }

  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    try await change(base)
    return entries
  }
}

/// An engine that admits others while a transaction runs: one writes an entry before the transaction reads it.
private struct ChangedDuringTransaction: StorageLayer {
  static let key = CacheKey(verbatim: "b")
  static let value = Data("new".utf8)

  let base = MemoryStorageEngine()
  let changedAt = ChangeTime()

  var capabilities: EngineCapabilities { base.capabilities.subtracting(.snapshotReads) }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { try body(Transaction($0, changedAt)) }
  }

  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    var entries = try await base.readEntries(keys: keys)
    guard let time = changedAt.date.withLock({ $0 }) else { return entries }
    for index in entries.indices where entries[index].key == Self.key {
      (entries[index].data, entries[index].updatedAt) = (Self.value, time)
    }
    return entries
  }

  final class ChangeTime: Sendable {
    let date = MutexProtected<Date?>(nil)
  }

  private final class Transaction: ForwardingTransaction {
    private let changedAt: ChangeTime

    init(_ base: any StorageTransaction, _ changedAt: ChangeTime) {
      self.changedAt = changedAt
      super.init(base)
    }

    override func allKeys() throws -> [CacheKey] {
      let start = Date.now
      // A clock may stand still for a moment.
      var now = start
      while now.timeIntervalSince(start) < 0.000_01 { now = .now }
      let time = now
      changedAt.date.withLock { $0 = time }
      return try super.allKeys()
    }

    override func read(key: CacheKey) throws -> Data? {
      key == ChangedDuringTransaction.key ? ChangedDuringTransaction.value : try super.read(key: key)
    }
  }
}
