import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomSQLite
import StockroomTestSupport
import TestFixtures
import Testing

/// Counts the scans and transactions of a task.
private struct TaskCountingEngine: StorageLayer {
  final class Calls: Sendable {
    private let counts = MutexProtected((scans: 0, transactions: 0))
    var scans: Int { counts.withLock { $0.scans } }
    var transactions: Int { counts.withLock { $0.transactions } }
    func addScan() { counts.withLock { $0.scans += 1 } }
    func addTransaction() { counts.withLock { $0.transactions += 1 } }
  }

  @TaskLocal static var calls: Calls?
  let base: SQLiteStorageEngine

  func scan(_ range: KeyRange, limit: Int?) async throws -> [(key: CacheKey, data: Data)] {
    Self.calls?.addScan()
    return try await base.scan(range, limit: limit)
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    Self.calls?.addTransaction()
    return try await base.withTransaction(body)
  }
}

/// A layer that does not support the format of one value.
private struct Refusing: ValueLayer {
  let base: MemoryStorageEngine

  func encode(_ value: Data, key: CacheKey) throws -> Data { value }

  func decode(_ stored: Data, key: CacheKey) throws -> Data {
    guard stored != Data("V".utf8) else { throw StorageError(.unsupported, "A fault of the test.") }
    return stored
  }
}

@Suite("Removal of expired values")
struct ExpirySweepingTests: ExpiringSuite {
  let base = MemoryStorageEngine()
  let clock = HandSetClock()

  @Test(
    "Writes gradually remove expired entries from the place",
    arguments: ["memory", "sqlite", "memory without scans"])
  func sweep(_ name: String) async throws {
    switch name {
    case "sqlite":
      let directory = try TemporaryDirectory()
      try await sweep(SQLiteStorageEngine(directory: directory.directory))
    case "memory": try await sweep(base)
    default: try await sweep(WithoutCapabilities(base: base, capabilities: .orderedScans))
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

  @Test("A write sweeps only its share and leaves entries added meanwhile to later writes, which catch up")
  func sweepsNoMoreThanItsShare() async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(after: .seconds(60), clock: clock.clock)
    failing.hold { $0.method == .scan }
    // The fourth write sweeps eight entries, a page.
    for number in 0..<3 { try await engine.write(value, key: CacheKey(verbatim: "first\(number)")) }
    async let sweeping: Void = engine.write(value, key: key)
    try await failing.waitForHeldCalls()
    for number in 0..<400 { try await engine.write(value, key: CacheKey(verbatim: "old\(number)")) }
    failing.release()
    try await sweeping
    #expect(failing.calls.count { $0.method == .scan } == 1)

    clock.advance(60)
    for number in 0..<20 {
      failing.resetCalls()
      try await engine.write(value, key: CacheKey(verbatim: "new\(number % 10)"), expiresAfter: nil)
      #expect(failing.calls.count { $0.method == .scan } <= 1)
    }
    #expect(try await base.keyCount() == 10)
  }

  @Test("The share of a batch that is written during another sweep is swept later")
  func overlappingBatches() async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(after: .seconds(60), clock: clock.clock)
    func batch(_ name: String) -> [(key: CacheKey, data: Data)] {
      (0..<300).map { (CacheKey(verbatim: "\(name) \($0)"), value) }
    }
    for round in 0..<10 {
      let (first, second) = (batch("\(round) a"), batch("\(round) b"))
      failing.hold { $0.method == .scan }
      async let sweeping: Void = engine.write(first)
      try await failing.waitForHeldCalls()
      try await engine.write(second)
      failing.release()
      try await sweeping
      clock.advance(60)
    }
    // More than one round. With half the sweeps the count would exceed three rounds by now, and grow with
    // each round.
    #expect(try await base.keyCount() < 2 * 600)
  }

  @Test("Each of any number of concurrent writers sweeps at most one page")
  func concurrentWriters() async throws {
    let directory = try TemporaryDirectory()
    let base = try SQLiteStorageEngine(directory: directory.directory)
    let engine = TaskCountingEngine(base: base).expiring(after: .zero, clock: clock.clock)
    try await withThrowingTaskGroup { group in
      for writer in 0..<16 {
        group.addTask { [value] in
          for number in 0..<50 {
            let calls = TaskCountingEngine.Calls()
            try await TaskCountingEngine.$calls.withValue(calls) {
              try await engine.write(value, key: CacheKey(verbatim: "\(writer) \(number)"))
            }
            #expect(calls.scans <= 1)
            #expect(calls.transactions <= 2)
          }
        }
      }
      try await group.waitForAll()
    }
    // Later writes sweep the rest.
    for _ in 0..<600 { try await engine.write(value, key: key, expiresAfter: nil) }
    #expect(try await base.keyCount() == 1)
    try await base.close()
  }

  @Test("removeExpired removes all expired entries and no others")
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

  @Test("The removal of expired entries is reported to every subscriber, including the caller")
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

  @Test("A failed sweep does not fail the write")
  func sweepFails() async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(after: .seconds(60), clock: clock.clock)
    try await engine.write((0..<100).map { (CacheKey(verbatim: "\($0)"), value) })
    clock.advance(60)
    failing.failEveryCall { $0.method == .scan }
    for number in 0..<200 { try await engine.write(value, key: CacheKey(verbatim: "new\(number)")) }
    #expect(try await base.keyCount() == 300)
    failing.clearFaults()
    for number in 0..<400 { try await engine.write(value, key: CacheKey(verbatim: "new\(number % 200)")) }
    #expect(try await base.keyCount() == 200)
  }

  @Test("Verification and removal read only a few large values at a time")
  func largeValues() async throws {
    let recorder = CallRecorder()
    let engine = base.instrumented(by: recorder).expiring(after: .seconds(60), clock: clock.clock)
    let keys = (0..<64).map { CacheKey(verbatim: "\($0)") }
    try await engine.write(keys.map { ($0, Data(count: 200_000)) })
    clock.advance(60)
    _ = recorder.take()
    try await engine.verify()
    #expect(try await engine.removeExpired() == 64)
    let sizes = recorder.take().map(\.bytesRead)
    #expect(sizes.reduce(0, +) >= 3 * 64 * 200_000)
    #expect(sizes.allSatisfy { $0 <= 8 * 200_017 })
  }

  @Test(
    "A corrupted entry is kept, and does not prevent the removal of expired ones", arguments: [true, false],
    [true, false])
  func corruptedEntry(isFoundBelow: Bool, isOnDemand: Bool) async throws {
    if isFoundBelow {
      try await corruptedEntry(base.checksummed(), isOnDemand)
    } else {
      try await corruptedEntry(base, isOnDemand)
    }
  }

  @Test(
    "An entry that the engine below does not support is kept, and does not prevent the removal of expired ones",
    arguments: [true, false])
  func unsupportedEntry(isOnDemand: Bool) async throws {
    try await corruptedEntry(Refusing(base: base), isOnDemand, .unsupported)
  }

  private func corruptedEntry(
    _ below: some StorageEngine, _ isOnDemand: Bool, _ code: StorageError.Code = .corrupted
  ) async throws {
    let engine = below.expiring(after: .seconds(60), clock: clock.clock)
    try await engine.write((0..<100).map { (CacheKey(verbatim: "b\($0)"), value) })
    try await base.write(Data("V".utf8), key: CacheKey(verbatim: "a"))
    clock.advance(60)
    if isOnDemand {
      let error = await #expect(throws: StorageError.self) { try await engine.removeExpired() }
      #expect(error?.code == code)
      #expect(try await base.allKeys() == [CacheKey(verbatim: "a")])
    } else {
      for number in 0..<400 {
        try await engine.write(value, key: CacheKey(verbatim: "new\(number % 10)"), expiresAfter: nil)
      }
      #expect(try await base.keyCount() == 11)
    }
  }

  @Test("A place whose keys cannot be listed is not read repeatedly", .timeLimit(.minutes(60)))
  func unlistedKeys() async throws {
    let failing = FailingStorageEngine(base)
    let engine = failing.expiring(after: .seconds(60), clock: clock.clock)
    failing.failEveryCall(with: StorageError(.corrupted, "A fault of the test.")) {
      [.scan, .allKeys].contains($0.method)
    }
    for number in 0..<400 { try await engine.write(value, key: CacheKey(verbatim: "\(number)")) }
    #expect(failing.calls.filter { $0.method == .scan }.count == 1)
    #expect(failing.calls.filter { $0.method == .allKeys }.count == 1)
    let error = await #expect(throws: StorageError.self) { try await engine.removeExpired() }
    #expect(error?.code == .corrupted)
  }

  @Test("A corrupted timestamp neither hides nor removes other entries, and is not assigned to any")
  func corruptedTime() async throws {
    let engine = engine(after: .seconds(86_400))
    let keys = (0..<300).map { CacheKey(verbatim: "\($0)") }
    try await engine.write(keys.map { ($0, value) })
    try await engine.write(value, key: key, expiresAfter: .seconds(Int64.max))
    var stored = try #require(try await base.read(key: key))
    // Moves the time of the write a hundred years ahead.
    stored[8] ^= 0x40
    try await base.write(stored, key: key)
    #expect(try await engine.read(key: key) == value)
    #expect(try await engine.read(key: keys[0]) == value)
    #expect(try await engine.removeExpired() == 0)
    let late = CacheKey(verbatim: "late")
    try await engine.write(value, key: late)
    for number in 0..<400 {
      try await engine.write(value, key: CacheKey(verbatim: "new\(number % 10)"), expiresAfter: nil)
    }
    try await engine.remove(key: key)
    let reopened = self.engine(after: nil)
    #expect(try await reopened.read(keys: keys + [late]).count == keys.count + 1)
    clock.advance(86_400)
    #expect(try await engine.removeExpired() == keys.count + 1)
  }
}
