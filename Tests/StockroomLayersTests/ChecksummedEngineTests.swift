import Foundation
import StockroomCore
import StockroomFileSystem
import StockroomKitSupport
import StockroomLayers
import StockroomMemory
import TestFixtures
import Testing

@Suite("Checksummed values")
struct ChecksummedEngineTests {
  private let base = MemoryStorageEngine()
  private let key = CacheKey(verbatim: "k")

  @Test("The stored bytes are the value and a checksum of the key's length, the key and the value")
  func form() async throws {
    // The CRC-32C of 5, 0 and "123456789".
    try await base.checksummed().write(Data("6789".utf8), key: CacheKey(verbatim: "12345"))
    let stored = try await base.read(key: CacheKey(verbatim: "12345"))
    #expect(stored == Data("6789".utf8) + Data([0xFF, 0x89, 0x5C, 0x33]))
  }

  @Test("A value is corrupted if bytes have moved from it to the key")
  func separation() async throws {
    let (short, long) = (CacheKey(verbatim: "a1"), CacheKey(verbatim: "a12"))
    try await base.checksummed().write(Data("23".utf8), key: short)
    let stored = try #require(try await base.read(key: short))
    try await base.write(Data(stored.dropFirst()), key: long)
    let error = await #expect(throws: StorageError.self) { try await base.checksummed().read(key: long) }
    #expect(error?.code == .corrupted)
  }

  @Test("Values of every length are preserved")
  func roundTrip() async throws {
    for count in [0, 1, 7, 8, 9, 4_096, 200_000] {
      let value = Data((0..<count).map { UInt8(truncatingIfNeeded: $0) })
      try await base.checksummed().write(value, key: key)
      let found = try #require(try await base.checksummed().read(key: key))
      #expect(found == value)
      #expect(found.startIndex == 0)
    }
  }

  @Test("Every flipped bit and every removed or added byte is detected")
  func corruption() async throws {
    let engine = base.checksummed()
    try await engine.write(Data("A value of some length.".utf8), key: key)
    let stored = try #require(try await base.read(key: key))
    var corrupted: [Data] = (0..<stored.count).map { stored.prefix($0) } + [stored + [0], [0] + stored]
    for bit in 0..<stored.count * 8 {
      var flipped = stored
      flipped[bit / 8] ^= 1 << (bit % 8)
      corrupted.append(flipped)
    }
    for stored in corrupted {
      try await base.write(Data(stored), key: key)
      try await expectCorrupted(engine)
    }
  }

  @Test("Swapped values are detected")
  func exchange() async throws {
    let (engine, other) = (base.checksummed(), CacheKey(verbatim: "l"))
    try await engine.write([(key, Data("one".utf8)), (other, Data("two".utf8))])
    let stored = try await base.read(keys: [key, other])
    try await base.write([(key, stored[1]), (other, stored[0])])
    try await expectCorrupted(engine)
  }

  /// Expects every read of values to throw.
  private func expectCorrupted(_ engine: ChecksummedEngine<MemoryStorageEngine>) async throws {
    let key = key
    let readings: [@Sendable () async throws -> Void] = [
      { _ = try await engine.read(key: key) }, { _ = try await engine.read(keys: [key]) },
      { _ = try await engine.readAllData() }, { _ = try await engine.readAllEntries() },
      { _ = try await engine.scan(.all, limit: nil) }, { try await engine.verify() },
      { _ = try await engine.withTransaction { try $0.read(key: key) } },
    ]
    for reading in readings {
      let error = await #expect(throws: StorageError.self) { try await reading() }
      #expect(error?.code == .corrupted)
    }
  }
}

@Suite("Places with an inventory")
struct InventoryEngineTests {
  private let base = MemoryStorageEngine()
  private let keys = (0..<20).map { CacheKey(verbatim: "key \($0)") }
  private let value = Data("value".utf8)

  private func expectCorrupted(
    _ location: SourceLocation = #_sourceLocation, _ work: () async throws -> Void
  ) async {
    let error = await #expect(throws: StorageError.self, sourceLocation: location) { try await work() }
    #expect(error?.code == .corrupted, sourceLocation: location)
  }

  @Test(
    "A missing, added or moved entry is found by the first call of a later opening, and by verify()"
  )
  func missing() async throws {
    let open = try base.checksummedWithInventory()
    try await open.write(keys.map { ($0, value) })
    try await open.remove(keys: [keys[0], keys[1], CacheKey(verbatim: "absent")])
    try await open.verify()
    let sound = try await base.readAllDataAndKeys()
    let stored = try #require(try await base.read(key: keys[5]))
    let corruptions: [[StorageOperation]] =
      sound.map { [.remove(key: $0.key)] } + [
        [.write(stored, key: keys[0])],
        [.remove(key: keys[5]), .write(stored, key: CacheKey(verbatim: "other"))],
        sound.dropFirst().map { .remove(key: $0.key) },
      ]
    for corruption in corruptions {
      try await base.apply(corruption)
      let reopened = try base.checksummedWithInventory()
      await expectCorrupted { _ = try await reopened.read(key: keys[10]) }
      await expectCorrupted { _ = try await reopened.allKeys() }
      await expectCorrupted { try await reopened.write(value, key: keys[10]) }
      await expectCorrupted { try await reopened.removeAllData() }
      await expectCorrupted { try await open.verify() }
      try await base.apply([.removeAll] + sound.map { .write($0.data, key: $0.key) })
      #expect(try await reopened.keyCount() == 18)
    }
  }

  @Test("After any calls the inventory matches the keys, and no call exposes it")
  func inventory() async throws {
    let engine = try base.checksummedWithInventory()
    let model = MemoryStorageEngine()
    var generator = SeededRandom(seed: 20)
    for _ in 0..<400 {
      let operations = (0..<Int.random(in: 1...6, using: &generator)).map { _ -> StorageOperation in
        let key = keys.randomElement(using: &generator) ?? keys[0]
        switch Int.random(in: 0..<20, using: &generator) {
        case 0: return .removeAll
        case 1..<8: return .remove(key: key)
        default: return .write(Data(key.value.utf8), key: key)
        }
      }
      try await engine.apply(operations)
      try await model.apply(operations)
      try await base.checksummedWithInventory().verify()
      #expect(try await engine.keyCount() == model.keyCount())
      #expect(try await engine.readAllEntries().map(\.key) == model.readAllEntries().map(\.key))
      for limit in [nil, 0, 1, 5, .max] {
        #expect(
          try await engine.scan(.all, limit: limit).map(\.key) == model.scan(.all, limit: limit).map(\.key))
      }
    }
  }

  @Test("A key that resembles the inventory's key is an ordinary key")
  func likeInventory() async throws {
    let engine = try base.checksummedWithInventory()
    try await engine.write(value, key: keys[0])
    let own = try #require(try await base.allKeys().first { $0 != keys[0] })
    #expect(try await engine.read(key: own) == nil)
    #expect(try await engine.keysExist([own, keys[0]]) == [keys[0]])
    try await engine.remove(key: own)
    try await engine.verify()

    let like = ["", "+", "++", "-", "~", "\u{301}", "/0"].map { CacheKey(verbatim: own.value + $0) }
    let all = (like + [keys[0], CacheKey(verbatim: "z"), CacheKey(verbatim: String(own.value.dropLast()))])
      .sorted()
    let changes = try await engine.changes()
    try await engine.write(all.map { ($0, Data($0.value.utf8)) })
    #expect(await changes.first { _ in true } == .keys(Set(all)))
    #expect(try await engine.allKeys().sorted() == all)
    #expect(try await engine.keyCount() == all.count)
    #expect(try await engine.readAllEntries().map(\.key).sorted() == all)
    for key in all {
      #expect(try await engine.read(key: key) == Data(key.value.utf8))
      #expect(try await engine.createdAt(key: key) != nil)
      for limit in [1, 3, nil] {
        var (expected, range) = (all.filter { $0 > key }, KeyRange(after: key, upTo: nil))
        if let limit { expected = Array(expected.prefix(limit)) }
        #expect(try await engine.scan(range, limit: limit).map(\.key) == expected)
        range = .prefix(key.value)
        expected = all.filter { $0.value.utf8.starts(with: key.value.utf8) }
        if let limit { expected = Array(expected.prefix(limit)) }
        #expect(try await engine.scan(range, limit: limit).map(\.key) == expected)
        let found = try await engine.withTransaction { [range] in try $0.scan(range, limit: limit).map(\.key)
        }
        #expect(found == expected)
      }
    }
    let entries = try await engine.readEntries(keys: like)
    try await engine.remove(keys: like)
    try await engine.verify()
    #expect(try await engine.allKeys().sorted() == all.filter { !like.contains($0) })
    try await engine.writeEntries(entries)
    #expect(try await engine.readDataAndKeys(keys: like).map(\.key) == like)
    let longest = CacheKey(verbatim: own.value + String(repeating: "l", count: 511 - own.value.utf8.count))
    let error = await #expect(throws: StorageError.self) { try await engine.write(value, key: longest) }
    #expect(error?.code == .invalidKey)
    try await base.checksummedWithInventory().verify()

    let other = try #require(try await base.read(key: CacheKey(verbatim: own.value + "++")))
    try await base.apply([
      .remove(key: CacheKey(verbatim: own.value + "++")),
      .write(other, key: CacheKey(verbatim: own.value + "*+")),
    ])
    await expectCorrupted { _ = try await base.checksummedWithInventory().allKeys() }
  }

  @Test("A foreign write beside the inventory makes it corrupted, and does not trap")
  func countsBeyondItsRange() async throws {
    let engine = try base.checksummedWithInventory()
    #expect(try await engine.read(key: keys[0]) == nil)
    try await base.write(value, key: keys[0])
    await expectCorrupted { try await engine.remove(key: keys[0]) }

    let most = withUnsafeBytes(of: (Int64.max.littleEndian, Int64(0), Int64(0))) { Data("I".utf8) + $0 }
    try await base.checksummed().write(most, key: inventoryKey())
    await expectCorrupted { try await engine.write(value, key: keys[1]) }
    #expect(try await base.keyExists(keys[1]) == false)
  }

  /// The key under which a place stores its inventory.
  private func inventoryKey() async throws -> CacheKey {
    let base = MemoryStorageEngine()
    try await base.checksummedWithInventory().write(value, key: keys[0])
    return try #require(try await base.allKeys().first { $0 != keys[0] })
  }

  @Test("A body that throws, or only reads, leaves the inventory unchanged")
  func undone() async throws {
    struct Undone: Error {}
    let engine = try base.checksummedWithInventory()
    try await engine.write(value, key: keys[0])
    let before = try await base.readAllDataAndKeys().map(\.data)
    await #expect(throws: Undone.self) {
      try await engine.withTransaction { [keys, value] transaction in
        try transaction.write(value, key: keys[1])
        throw Undone()
      }
    }
    #expect(try await engine.withTransaction { try $0.keyCount() } == 1)
    #expect(try await base.readAllDataAndKeys().map(\.data) == before)
  }

  @Test("An inventory is refused in front of expiring entries, and allowed behind them")
  func expiring() async throws {
    let layers: [() throws -> any StorageEngine] = [
      { try base.expiring().checksummedWithInventory() },
      { try base.expiring(after: .seconds(1)).compressed().namespaced("n").checksummedWithInventory() },
    ]
    for layer in layers {
      let error = #expect(throws: StorageError.self) { _ = try layer() }
      #expect(error?.code == .unsupported)
      #expect(error?.message.contains("expiring(after:clock:)") == true)
    }
    let engine = try base.checksummedWithInventory().expiring(after: .zero)
    try await engine.write(value, key: keys[0])
    #expect(try await engine.removeExpired() == 1)
    try await engine.verify()
  }

  /// Cancels the task that reads a value, and records whether keys are listed on the main thread.
  private struct CancellingEngine: StorageLayer {
    let base: MemoryStorageEngine
    let hasListedOnMainThread: Flag

    func read(key: CacheKey) async throws -> Data? {
      let data = try await base.read(key: key)
      withUnsafeCurrentTask { $0?.cancel() }
      return data
    }

    func allKeys() async throws -> [CacheKey] {
      if isOnMainThread() { hasListedOnMainThread.set() }
      return try await base.allKeys()
    }

    func keyExists(_ key: CacheKey) async throws -> Bool { true }

    private func isOnMainThread() -> Bool { Thread.isMainThread }
  }

  private final class Flag: Sendable {
    private let value = MutexProtected(false)
    var isSet: Bool { value.withLock { $0 } }
    func set() { value.withLock { $0 = true } }
  }

  @Test("The first call does not hash the keys on the caller's actor, and can be cancelled")
  @MainActor func firstCall() async throws {
    try await base.checksummedWithInventory().write(keys.map { ($0, value) })
    let flag = Flag()
    let engine = try CancellingEngine(base: base, hasListedOnMainThread: flag).checksummedWithInventory()
    let call = Task { try await engine.keyExists(keys[0]) }
    await #expect(throws: CancellationError.self) { try await call.value }
    #expect(!flag.isSet)
  }

  @Test("An engine without transactions has no inventory")
  func unsupported() throws {
    struct WithoutTransactions: StorageLayer {
      let base: MemoryStorageEngine
      var capabilities: EngineCapabilities { base.capabilities.subtracting(.transactions) }
    }
    let error = #expect(throws: StorageError.self) {
      try WithoutTransactions(base: base).checksummedWithInventory()
    }
    #expect(error?.code == .unsupported)
  }
}
