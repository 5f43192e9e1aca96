import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import TestFixtures
import Testing

/// In front of a server each read of the engine below can be a network round trip.
@Suite("Bulk reads in transactions of layers")
struct TransactionReadTests {
  private let keys = ["a", "b", "absent", "c", "a"].map { CacheKey(verbatim: $0) }

  private func check<Layer: StorageEngine>(_ makeLayer: (ReadCounter) throws -> Layer) async throws {
    let base = ReadCounter()
    let layer = try makeLayer(base)
    try await layer.write(["a", "b", "c"].map { (CacheKey(verbatim: $0), Data("value of \($0)".utf8)) })
    let (single, many) = try await layer.withTransaction { [keys] transaction -> (Int, Int) in
      // The layer may read first, for example its inventory.
      base.reset()
      let texts = try transaction.read(keys: keys).map { String(decoding: $0, as: UTF8.self) }
      #expect(texts == ["value of a", "value of b", "value of c", "value of a"])
      return base.counts
    }
    #expect(single == 0)
    #expect(many == 1)
    await #expect(throws: StorageError.self) {
      try await layer.withTransaction {
        _ = try $0.read(keys: [CacheKey(verbatim: "a"), CacheKey(verbatim: "")])
      }
    }
  }

  @Test("A layer makes one read of the engine below")
  func once() async throws {
    try await check { $0.compressed() }
    try await check { try $0.checksummedWithInventory() }
    try await check { try $0.namespaced("n") }
    try await check { $0.expiring(after: .seconds(100)) }
    try await check { $0.cached(limit: .unlimited) }
    try await check { $0.instrumented(by: CallRecorder()) }
  }

  @Test("Stacked layers make one read of the engine below")
  func stacked() async throws {
    try await check {
      try $0.instrumented(by: CallRecorder()).cached(limit: .unlimited).namespaced("n")
        .checksummedWithInventory().compressed().expiring()
    }
  }

  @Test("A transaction without bulk reads is read one key at a time")
  func oneByOne() async throws {
    let base = ReadCounter()
    let layer = SingleReads(base: base).compressed()
    try await layer.write(Data("value".utf8), key: keys[0])
    let values = try await layer.withTransaction { [keys] transaction in
      base.reset()
      return try transaction.read(keys: keys)
    }
    let counts = base.counts
    #expect(values == [Data("value".utf8), Data("value".utf8)])
    #expect(counts.0 == 5)
    #expect(counts.1 == 0)
  }

  #if canImport(CryptoKit) || Encryption
    @Test("Encrypted entries with hidden keys are read in one call")
    func encrypted() async throws {
      let key = try EncryptionKey.known("k")
      try await check { try $0.encrypted(with: Keyring(key), hidingKeysWith: key) }
    }
  #endif
}

/// Counts the reads of transactions.
private final class ReadCounter: StorageLayer {
  let base = MemoryStorageEngine()
  private let state = MutexProtected((single: 0, many: 0))

  var counts: (Int, Int) { state.withLock { ($0.single, $0.many) } }

  func reset() { state.withLock { $0 = (0, 0) } }

  func add(single: Int = 0, many: Int = 0) {
    state.withLock { $0 = ($0.single + single, $0.many + many) }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { [self] in try body(CountingTransaction($0, self)) }
  }
}

private final class CountingTransaction: ForwardingTransaction, BulkReadingTransaction {
  private let counter: ReadCounter

  init(_ base: any StorageTransaction, _ counter: ReadCounter) {
    self.counter = counter
    super.init(base)
  }

  override func read(key: CacheKey) throws -> Data? {
    counter.add(single: 1)
    return try base.read(key: key)
  }

  override func read(keys: [CacheKey]) throws -> [Data] {
    counter.add(many: 1)
    return try base.read(keys: keys)
  }

  func readValues(of keys: [CacheKey]) throws -> [Data?] {
    counter.add(many: 1)
    return try base.values(of: keys)
  }
}

/// An engine with transactions of another type, which does not support bulk reads.
private struct SingleReads: StorageLayer {
  let base: ReadCounter

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { try body(ForwardingTransaction($0)) }
  }
}
