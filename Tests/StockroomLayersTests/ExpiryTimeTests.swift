import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import Testing

@Suite("The time at which values expire")
struct ExpiryTimeTests: ExpiringSuite {
  let base = MemoryStorageEngine()
  let clock = HandSetClock()

  @Test("An entry that a body has read does not expire within the body")
  func ownWrites() async throws {
    let (engine, clock, key, value) = (engine(), clock, key, value)
    let other = CacheKey(verbatim: "other")
    try await engine.write(value, key: key)
    try await engine.withTransaction { transaction in
      #expect(try transaction.read(key: key) == value)
      clock.advance(60)
      try transaction.write(value, key: other)
      #expect(try transaction.read(key: other) == value)
      #expect(try transaction.read(key: key) == value)
      #expect(try transaction.allKeys().count == 2)
    }
    #expect(try await engine.allKeys() == [other])
  }

  @Test("A body does not read its own write with a lifetime of zero")
  func ownExpiredWrites() async throws {
    let (engine, clock, key, value) = (engine(after: .zero), clock, key, value)
    try await engine.withTransaction { transaction in
      clock.advance(1)
      try transaction.write(value, key: key)
      #expect(try transaction.read(key: key) == nil)
    }
  }

  /// Writes a value by a clock that is ten minutes ahead.
  private func writeAhead(_ key: CacheKey) async throws {
    let ahead = HandSetClock()
    ahead.advance(600)
    try await base.expiring(after: .seconds(3_600), clock: ahead.clock).write(value, key: key)
  }

  @Test(
    "A body evaluates everything at the time at which it began, also beside values that are ahead of its clock"
  )
  func bodiesBesideFastClocks() async throws {
    let (engine, key, value) = (engine(), key, value)
    let (ahead, own) = (CacheKey(verbatim: "ahead"), CacheKey(verbatim: "own"))
    try await writeAhead(ahead)
    try await engine.write(value, key: key)
    try await engine.withTransaction { transaction in
      #expect(try transaction.read(key: key) == value)
      try transaction.write(value, key: own)
      #expect(try transaction.read(key: ahead) == value)
      #expect(try transaction.read(key: own) == value)
      #expect(try transaction.read(key: key) == value)
      #expect(try transaction.keyCount() == 3)
    }
    #expect(try await engine.allKeys() == [ahead])
  }

  @Test("A call evaluates everything at one time, also beside values that are ahead of its clock")
  func callsBesideFastClocks() async throws {
    let ahead = CacheKey(verbatim: "m")
    let both = [CacheKey(verbatim: "a"), CacheKey(verbatim: "z")]
    try await writeAhead(ahead)
    try await engine().write(both.map { ($0, value) })
    for read in [
      { try await $0.scan(.all, limit: nil).map(\.key) }, { try await $0.scan(.all, limit: 3).map(\.key) },
      { try await $0.readEntries(keys: [both[0], ahead, both[1]]).map(\.key) },
      { try await $0.keysExist([both[0], ahead, both[1]]) },
    ] as [@Sendable (ExpiringEngine<MemoryStorageEngine>) async throws -> [CacheKey]] {
      let engine = engine()
      #expect(Set(try await read(engine)) == Set(both + [ahead]))
      #expect(try await read(engine) == [ahead])
    }
  }

  @Test("All entries of one batch expire together", arguments: [false, true])
  func batches(_ hasTransactions: Bool) async throws {
    // Each reading of the clock is a second later.
    let seconds = MutexProtected(0.0)
    let clock = ExpiryClock {
      seconds.withLock {
        $0 += 1
        return Date(timeIntervalSince1970: $0)
      }
    } uptime: {
      .zero
    }
    let engine = WithoutCapabilities(base: base, capabilities: hasTransactions ? [] : .transactions)
      .expiring(after: .seconds(3_600), clock: clock)
    let keys = (0..<10).map { CacheKey(verbatim: "\($0)") }
    let now = Date()
    for write in [
      { try await engine.write(keys.map { ($0, value) }) },
      { try await engine.apply(keys.map { .write(value, key: $0) }) },
      {
        try await engine.writeEntries(
          keys.map { StorageEntry(key: $0, data: value, createdAt: now, updatedAt: now) })
      },
    ] as [@Sendable () async throws -> Void] {
      try await write()
      var expirations: Set<Date> = []
      for key in keys { expirations.insert(try #require(try await engine.expiration(of: key))) }
      #expect(expirations.count == 1)
    }
  }
}
