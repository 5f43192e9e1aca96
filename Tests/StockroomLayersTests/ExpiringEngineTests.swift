import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomTestSupport
import TestFixtures
import Testing

@Suite("Expiring values")
struct ExpiringEngineTests: ExpiringSuite {
  let base = MemoryStorageEngine()
  let clock = HandSetClock()

  @Test("An entry is present until it expires, and absent for every call afterwards")
  func expires() async throws {
    let engine = engine()
    try await engine.write(value, key: key)
    clock.advance(59)
    #expect(try await visible(engine) == [true])
    #expect(try await engine.createdAt(key: key) != nil)
    clock.advance(1)
    #expect(try await visible(engine) == [false])
    #expect(try await engine.createdAt(key: key) == nil)
    #expect(try await engine.updatedAt(key: key) == nil)
    #expect(try await base.keyCount() == 1)
    try await engine.verify()
  }

  @Test("A body that takes the first entry reads few entries, however many have expired before it")
  func scanInBodyPastExpired() async throws {
    let counting = CountsScans(base: base)
    let engine = counting.expiring(after: .seconds(60), clock: clock.clock)
    try await engine.write((0..<1000).map { (CacheKey(verbatim: "a\($0)"), value) })
    clock.advance(61)
    try await base.expiring(clock: clock.clock).write(value, key: key)
    let found = try await engine.withTransaction { try $0.scan(.all, limit: 1) }
    #expect(found.map(\.key) == [key])
    #expect(counting.count < 20)
  }

  /// The results of every read method: one element if all agree.
  private func visible(_ engine: some StorageEngine) async throws -> Set<Bool> {
    let key = key
    var found: Set<Bool> = [
      try await engine.read(key: key) != nil, try await engine.keyExists(key),
      try await !engine.read(keys: [key]).isEmpty, try await !engine.readDataAndKeys(keys: [key]).isEmpty,
      try await !engine.keysExist([key]).isEmpty, try await !engine.readAllData().isEmpty,
      try await !engine.readAllDataAndKeys().isEmpty, try await !engine.readAllEntries().isEmpty,
      try await !engine.readEntries(keys: [key]).isEmpty, try await !engine.allKeys().isEmpty,
      try await engine.keyCount() == 1, try await !engine.scan(.all, limit: nil).isEmpty,
      try await !engine.scan(.all, limit: 1).isEmpty,
    ]
    try await found.formUnion(
      engine.withTransaction { transaction in
        [
          try transaction.read(key: key) != nil, try transaction.keyExists(key),
          try !transaction.read(keys: [key]).isEmpty, try !transaction.allKeys().isEmpty,
          try transaction.keyCount() == 1, try !transaction.scan(.all, limit: nil).isEmpty,
          try !transaction.scan(.all, limit: 1).isEmpty,
        ]
      })
    return found
  }

  @Test("An entry that is renewed in time during a read is present for every read method")
  func renewedMeanwhile() async throws {
    let (key, value, clock) = (key, value, clock)
    let renewing = engine(after: .seconds(10))
    let renewed = AnswersLate(base: base) {
      clock.advance(4)
      try await renewing.write(value, key: key)
      clock.advance(4)
    }.expiring(after: .seconds(10), clock: clock.clock)
    try await renewing.write(value, key: key)
    clock.advance(4)
    #expect(try await visible(renewed) == [true])
    #expect(try await renewed.expiration(of: key) != nil)
    #expect(try await renewed.createdAt(key: key) != nil)
  }

  @Test("Setting the clock back neither restores an entry nor extends a lifetime")
  func setBack() async throws {
    let engine = engine()
    try await engine.write(value, key: key)
    clock.advance(60)
    #expect(try await visible(engine) == [false])
    clock.set(forwardBy: -100_000)
    #expect(try await visible(engine) == [false])
    try await engine.write(value, key: key)
    clock.advance(59)
    #expect(try await visible(engine) == [true])
    clock.set(forwardBy: -100_000)
    clock.advance(1)
    #expect(try await visible(engine) == [false])
  }

  @Test("Setting the clock forward ends lifetimes, and later ones have their full length")
  func setForward() async throws {
    let engine = engine()
    try await engine.write(value, key: key)
    clock.set(forwardBy: 100_000)
    #expect(try await visible(engine) == [false])
    try await engine.write(value, key: key)
    clock.set(forwardBy: -100_000)
    clock.advance(59)
    #expect(try await visible(engine) == [true])
    clock.advance(1)
    #expect(try await visible(engine) == [false])
  }

  @Test("After reopening, the clock continues from the latest write if that is at most a day ahead")
  func setBackAcrossOpenings() async throws {
    let other = CacheKey(verbatim: "l")
    try await engine().write(value, key: key)
    clock.advance(60)
    try await engine().write(value, key: other)
    clock.set(forwardBy: -86_400)
    let reopened = engine()
    #expect(try await reopened.read(key: other) == value)
    #expect(try await reopened.read(key: key) == nil)
    clock.set(forwardBy: -1)
    let farBehind = engine()
    #expect(try await farBehind.read(key: other) == value)
    #expect(try await farBehind.read(key: key) == value)
  }

  @Test("In its transaction a batch reads each old value once")
  func readsInTransactions() async throws {
    let recorder = CallRecorder()
    let engine = base.instrumented(by: recorder).expiring(after: .seconds(60), clock: clock.clock)
    let entries = (0..<3).map { (key: CacheKey(verbatim: "\($0)"), data: value) }
    let stored = entries.map {
      StorageEntry(key: $0.key, data: $0.data, createdAt: clock.now, updatedAt: clock.now)
    }
    let calls: [@Sendable () async throws -> Void] = [
      { try await engine.write(entries) }, { try await engine.writeEntries(stored) },
    ]
    for call in calls {
      try await call()
      _ = recorder.take()
      try await call()
      #expect(recorder.take().filter { $0.operation == .withTransaction }.map(\.entriesReturned) == [3])
      clock.advance(60)
      // The first call, before the sweep that follows it.
      try await call()
      #expect(recorder.take().first { $0.operation == .withTransaction }?.entriesReturned == 3)
    }
  }

  @Test("Each write may set a lifetime, and the last one applies; without one an entry never expires")
  func lifetimes() async throws {
    let engine = engine(after: nil)
    try await engine.write(value, key: key)
    #expect(try await engine.expiration(of: key) == nil)
    try await engine.write(value, key: key, expiresAfter: .seconds(10))
    #expect(try await engine.expiration(of: key) == clock.now + 10)
    try await engine.write([(key, value)], expiresAfter: .seconds(100))
    clock.advance(99)
    #expect(try await visible(engine) == [true])
    try await engine.apply([.write(value, key: key)])
    clock.advance(1_000_000_000)
    #expect(try await visible(engine) == [true])
    #expect(try await engine.expiration(of: CacheKey(verbatim: "absent")) == nil)
  }

  @Test(
    "The shortest lifetimes expire at once, and the longest do not expire",
    arguments: [
      (Duration.zero, false), (.seconds(-1), false), (.nanoseconds(Int64.min), false),
      (.seconds(Int64.min), false), (.seconds(Int64.max), true), (.seconds(400 * 366 * 86_400), true),
    ])
  func extremes(_ lifetime: Duration, _ isThere: Bool) async throws {
    try await engine().write(value, key: key, expiresAfter: lifetime)
    #expect(try await visible(engine()) == [isThere])
  }

  @Test(
    "A write over an expired entry creates a new entry",
    arguments: ["write", "write many", "apply", "transaction"])
  func writeOverExpired(_ call: String) async throws {
    let (engine, other) = (engine(), CacheKey(verbatim: "other"))
    try await engine.write(value, key: key)
    try await engine.write(value, key: other, expiresAfter: nil)
    let first = try #require(try await engine.createdAt(key: key))
    clock.advance(60)
    let (key, value) = (key, value)
    switch call {
    case "write": try await engine.write(value, key: key)
    case "write many": try await engine.write([(other, value), (key, value)], expiresAfter: .seconds(60))
    case "apply": try await engine.apply([.remove(key: CacheKey(verbatim: "x")), .write(value, key: key)])
    default: try await engine.withTransaction { try $0.write(value, key: key) }
    }
    #expect(try #require(try await engine.createdAt(key: key)) > first)
    #expect(try await engine.readAllEntries().map(\.key) == [other, key])
  }

  @Test("A scan with a limit finds as many entries as exist, whatever has expired in between")
  func scan() async throws {
    let engine = engine()
    let keys = (0..<1_000).map { CacheKey(verbatim: String(format: "%04d", $0)) }
    try await engine.write(keys.map { ($0, value) })
    try await engine.write(
      keys.enumerated().filter { $0.offset % 300 == 299 }.map { ($0.element, value) }, expiresAfter: nil)
    clock.advance(60)
    for limit in [1, 2, 3, 4] {
      let expected = [keys[299], keys[599], keys[899]].prefix(limit)
      #expect(try await engine.scan(.all, limit: limit).map(\.key) == Array(expected))
      let inside = try await engine.withTransaction { try $0.scan(.all, limit: limit).map(\.key) }
      #expect(inside == Array(expected))
    }
    #expect(
      try await engine.scan(KeyRange(after: keys[299], upTo: keys[898]), limit: 5).map(\.key) == [keys[599]])
    #expect(try await engine.scan(.all, limit: .max).count == 3)
    #expect(try await engine.scan(.all, limit: -1).isEmpty)
  }

  @Test("Without transactions a live entry is overwritten, and only an expired one is replaced by a new one")
  func withoutTransactions() async throws {
    let engine = WithoutCapabilities(base: base, capabilities: .transactions)
      .expiring(after: .seconds(60), clock: clock.clock)
    let other = CacheKey(verbatim: "other")
    try await engine.write(value, key: key)
    try await engine.write(value, key: other, expiresAfter: nil)
    let before = try #require(try await engine.createdAt(key: other))
    clock.advance(60)
    try await engine.write([(key, value), (other, value), (key, Data("last".utf8))], expiresAfter: nil)
    #expect(try await engine.createdAt(key: other) == before)
    #expect(try await engine.readAllEntries().map(\.key) == [other, key])
    #expect(try await engine.read(key: key) == Data("last".utf8))
  }

  @Test("An entry that expired while a write waited is replaced by a new entry")
  func expiresMeanwhile() async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(clock: clock.clock)
    try await engine.write(value, key: key, expiresAfter: .seconds(60))
    let first = try #require(try await engine.createdAt(key: key))
    failing.hold { $0.isWrite }
    async let write: Void = engine.write(value, key: key)
    try await failing.waitForHeldCalls()
    clock.advance(60)
    #expect(try await engine.read(key: key) == nil)
    failing.release()
    try await write
    #expect(try #require(try await engine.createdAt(key: key)) > first)
  }

  @Test("A lifetime begins when the write takes effect, however long it has waited")
  func lifetimesOfWaitingWrites() async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(after: .seconds(60), clock: clock.clock)
    let (key, value) = (key, value)
    let entry = StorageEntry(key: key, data: value, createdAt: .now, updatedAt: .now)
    let calls: [@Sendable () async throws -> Void] = [
      { try await engine.write(value, key: key) }, { try await engine.write([(key, value)]) },
      { try await engine.write([(key, value), (CacheKey(verbatim: "other"), value)]) },
      { try await engine.apply([.write(value, key: key)]) }, { try await engine.writeEntries([entry]) },
    ]
    for call in calls {
      failing.hold { $0.isWrite }
      async let write: Void = call()
      try await failing.waitForHeldCalls()
      clock.advance(60)
      failing.release()
      try await write
      #expect(try await engine.read(key: key) == value)
      #expect(try await engine.expiration(of: key) == clock.now + 60)
      try await engine.remove(key: key)
    }
  }

  @Test("A long body replaces an entry that expired meanwhile by a new entry")
  func longBody() async throws {
    let (engine, clock, key, value) = (engine(), clock, key, value)
    try await engine.write(value, key: key)
    let first = try #require(try await engine.createdAt(key: key))
    try await engine.withTransaction { transaction in
      _ = try transaction.read(key: key)
      clock.advance(60)
      try transaction.write(value, key: key)
    }
    #expect(try #require(try await engine.createdAt(key: key)) > first)
    #expect(try await engine.expiration(of: key) == clock.now + 60)
  }

  @Test("A value without its timestamps is corrupted, and does not affect the clock")
  func corrupted() async throws {
    let engine = engine()
    let times = withUnsafeBytes(of: (Int64.max.littleEndian, Int64(5).littleEndian)) { Data($0) }
    try await engine.write(value, key: CacheKey(verbatim: "sound"))
    for stored in [
      Data(), Data("V".utf8), Data("X".utf8), Data("X1234567890abcde".utf8), Data("X".utf8) + times,
    ] {
      try await base.write(stored, key: key)
      for reading in [
        { _ = try await engine.read(key: key) }, { try await engine.verify() },
        { _ = try await engine.removeExpired() }, { try await engine.write(value, key: key) },
      ] {
        let error = await #expect(throws: StorageError.self) { try await reading() }
        #expect(error?.code == .corrupted)
      }
    }
    #expect(try await engine.read(key: CacheKey(verbatim: "sound")) == value)
    try await engine.remove(key: key)
    try await engine.write(value, key: key)
  }
}

/// An engine that counts the scans of transactions' bodies.
private final class CountsScans: StorageLayer {
  let base: MemoryStorageEngine
  private let scans = MutexProtected(0)
  var capabilities: EngineCapabilities { base.capabilities }

  var count: Int { scans.withLock { $0 } }

  init(base: MemoryStorageEngine) { self.base = base }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { transaction in
      try body(CountingTransaction(transaction) { self.scans.withLock { $0 += 1 } })
    }
  }
}

private final class CountingTransaction: ForwardingTransaction {
  private let note: () -> Void

  init(_ base: any StorageTransaction, _ note: @escaping () -> Void) {
    self.note = note
    super.init(base)
  }

  override func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    note()
    return try super.scan(range, limit: limit)
  }
}
