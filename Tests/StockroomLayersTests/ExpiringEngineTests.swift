import Foundation
import StockroomCore
import StockroomEngines
import StockroomKitSupport
import StockroomLayers
import StockroomMemory
import StockroomSQLite
import StockroomTestSupport
import Synchronization
import TestFixtures
import Testing

/// A system clock that is set by hand.
private final class HandSetClock: Sendable {
  private let state = Mutex((time: Date(timeIntervalSince1970: 1_800_000_000), uptime: Duration.zero))

  var now: Date { state.withLock { $0.time } }

  /// So many seconds pass.
  func advance(_ seconds: Int) {
    state.withLock { $0 = ($0.time + TimeInterval(seconds), $0.uptime + .seconds(seconds)) }
  }

  /// Sets the clock forward, or back.
  func set(forwardBy seconds: Int) { state.withLock { $0.time += TimeInterval(seconds) } }

  var clock: ExpiryClock {
    ExpiryClock(now: { self.now }, uptime: { self.state.withLock { $0.uptime } })
  }
}

@Suite("Values that expire")
struct ExpiringEngineTests {
  private let base = MemoryStorageEngine()
  private let clock = HandSetClock()
  private let key = CacheKey(verbatim: "k")
  private let value = Data("value".utf8)

  private func engine(
    after lifetime: Duration? = .seconds(60)
  ) -> ExpiringEngine<MemoryStorageEngine> {
    base.expiring(after: lifetime, clock: clock.clock)
  }

  @Test("An entry is there until its time is over, and then for no call")
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

  /// What every way of reading says: one element if all agree.
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

  @Test("A clock that is set back brings nothing back, and prolongs nothing")
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

  @Test("A clock that is set forward ends lives, and those that begin then are as long as any")
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

  @Test("After another start it is as late as when the entries were written")
  func setBackAcrossOpenings() async throws {
    let other = CacheKey(verbatim: "l")
    try await engine().write(value, key: key)
    clock.advance(60)
    try await engine().write(value, key: other)
    clock.set(forwardBy: -100_000)
    let reopened = engine()
    #expect(try await reopened.read(key: other) == value)
    #expect(try await reopened.read(key: key) == nil)
  }

  @Test("Each write may have a lifetime, of which the last one counts; without one an entry stays for ever")
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
    "The shortest and longest lifetimes",
    arguments: [
      (Duration.zero, false), (.seconds(-1), false), (.nanoseconds(Int64.min), false),
      (.seconds(Int64.min), false), (.seconds(Int64.max), true), (.seconds(400 * 366 * 86_400), true),
    ])
  func extremes(_ lifetime: Duration, _ isThere: Bool) async throws {
    try await engine().write(value, key: key, expiresAfter: lifetime)
    #expect(try await visible(engine()) == [isThere])
  }

  @Test(
    "What is written in place of an expired entry is a new one",
    arguments: ["write", "write many", "apply", "transaction"])
  func rebirth(_ call: String) async throws {
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

  @Test("A scan with a limit finds as many as there are, whatever has expired in between")
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

  @Test(
    "As writes go by, expired entries leave the place",
    arguments: ["memory", "sqlite", "memory without scans"])
  func sweep(_ name: String) async throws {
    switch name {
    case "sqlite":
      let directory = try TemporaryDirectory()
      try await sweep(SQLiteStorageEngine(directory: directory.directory))
    case "memory": try await sweep(base)
    default: try await sweep(Lacking(base: base, capabilities: .orderedScans))
    }
  }

  private func sweep(_ base: some StorageEngine) async throws {
    let engine = base.expiring(after: .seconds(60), clock: clock.clock)
    let old = (0..<300).map { CacheKey(verbatim: "old\($0)") }
    try await engine.write(old.map { ($0, value) })
    clock.advance(60)
    for number in 0..<400 {
      try await engine.write(value, key: CacheKey(verbatim: "new\(number % 10)"), expiresAfter: nil)
    }
    #expect(try await base.keyCount() == 10)
  }

  @Test("All expired entries are removed on demand, and nothing else")
  func removeExpired() async throws {
    let engine = engine()
    let keys = (0..<1_000).map { CacheKey(verbatim: "\($0)") }
    try await engine.write(keys.map { ($0, Data(count: 5_000)) })
    try await engine.write(keys.prefix(100).map { ($0, value) }, expiresAfter: nil)
    clock.advance(60)
    let feed = try await base.changes()
    #expect(try await engine.removeExpired() == 900)
    #expect(try await engine.removeExpired() == 0)
    #expect(try await Set(base.allKeys()) == Set(keys.prefix(100)))
    var changes = feed.makeAsyncIterator()
    #expect(await changes.next() == .keys(Set(keys.dropFirst(100))))
  }

  @Test("Without transactions what is alive is overwritten, and only what has expired is written as new")
  func withoutTransactions() async throws {
    let engine = Lacking(base: base, capabilities: .transactions)
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

  @Test("Who has expired entries removed hears of it, as everybody does: it is nobody's change")
  func feedOfExpired() async throws {
    let (engine, origin) = (engine(), ChangeOrigin())
    let old = (0..<100).map { CacheKey(verbatim: "old\($0)") }
    try await ChangeOrigin.$current.withValue(origin) {
      var changes = try await engine.changes().makeAsyncIterator()
      try await engine.write(old.map { ($0, value) })
      clock.advance(60)
      try await engine.removeExpired()
      try await ChangeOrigin.$current.withValue(nil) { try await engine.write(value, key: key) }
      #expect(await changes.next() == .keys(Set(old + [key])))
    }
  }

  @Test("What cannot be removed at the moment fails no write")
  func sweepFails() async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(after: .seconds(60), clock: clock.clock)
    try await engine.write((0..<100).map { (CacheKey(verbatim: "\($0)"), value) })
    clock.advance(60)
    failing.failEveryCall { $0.method == .withTransaction }
    for number in 0..<200 { try await engine.write(value, key: CacheKey(verbatim: "new\(number)")) }
    #expect(try await base.keyCount() == 300)
    failing.clearFaults()
    for number in 0..<400 { try await engine.write(value, key: CacheKey(verbatim: "new\(number % 200)")) }
    #expect(try await base.keyCount() == 200)
  }

  @Test("A value without its times is corrupted, and decides no time")
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

/// An engine without some of the capabilities of another.
private struct Lacking<Base: StorageEngine>: StorageLayer {
  let base: Base
  let capabilities: EngineCapabilities

  init(base: Base, capabilities missing: EngineCapabilities) {
    (self.base, capabilities) = (base, base.capabilities.subtracting(missing))
  }
}
