import Foundation
import StockroomCore
import StockroomKitSupport
import StockroomLayers
import StockroomMemory
import StockroomSQLite
import StockroomStore
import TestFixtures
import Testing

@Suite("Namespaces")
struct NamespacedEngineTests {
  private let place = MemoryStorageEngine()
  private let key = CacheKey(verbatim: "k")

  private func expect(
    _ code: StorageError.Code, _ location: SourceLocation = #_sourceLocation,
    from work: () async throws -> Void
  ) async {
    let error = await #expect(throws: StorageError.self, sourceLocation: location) { try await work() }
    #expect(error?.code == code, sourceLocation: location)
  }

  @Test("Calls in a namespace do not affect namespaces with similar names, or the place itself")
  func neighbors() async throws {
    let engine = try place.namespaced("a")
    let others = [
      try place.namespaced("ab"), try place.namespaced("b"), try place.namespaced("A"),
      try place.namespaced("a\0"),
    ]
    let keys = ["k", "a/k", "/", "ab", "a"].map(CacheKey.init(verbatim:))
    for (number, other) in others.enumerated() {
      try await other.write(keys.map { ($0, Data("\(number)".utf8)) })
    }
    try await place.write(keys.filter { !$0.value.hasPrefix("a/") }.map { ($0, Data("place".utf8)) })
    let before = try await place.readAllEntries()

    let works: [(NamespacedEngine<MemoryStorageEngine>) async throws -> Void] = [
      { try await $0.removeAllData() }, { try await $0.remove(keys: keys) },
      { try await $0.remove(key: key) },
      { try await $0.apply([.removeAll]) }, { try await $0.apply(keys.map { .remove(key: $0) }) },
      { try await $0.withTransaction { try $0.removeAll() } },
    ]
    for work in works {
      for keys in [keys, (0..<600).map { CacheKey(verbatim: "\($0)") }] {
        try await engine.write(keys.map { ($0, Data("own".utf8)) })
        #expect(try await Set(engine.allKeys()) == Set(keys))
        #expect(try await engine.keyCount() == keys.count)
        #expect(try await engine.readAllData() == keys.map { _ in Data("own".utf8) })
        try await work(engine)
        try await engine.removeAllData()
        #expect(try await engine.readAllEntries().isEmpty)
        #expect(try await place.readAllEntries() == before)
      }
    }
    for (number, other) in others.enumerated() {
      #expect(try await other.read(keys: keys) == keys.map { _ in Data("\(number)".utf8) })
      #expect(try await other.scan(.all, limit: nil).map(\.key) == keys.sorted())
    }
  }

  @Test("A name has 1 to 32 bytes and no slash, and the engine below must have transactions")
  func names() async throws {
    struct WithoutTransactions: StorageLayer {
      let base: MemoryStorageEngine
      var capabilities: EngineCapabilities { base.capabilities.subtracting(.transactions) }
    }
    for name in ["", "a/b", "/", String(repeating: "x", count: 33)] {
      await expect(.invalidKey) { _ = try place.namespaced(name) }
    }
    _ = try place.namespaced(String(repeating: "x", count: 32))
    await expect(.unsupported) { _ = try WithoutTransactions(base: place).namespaced("a") }
  }

  @Test("A batch across several namespaces is atomic")
  func batches() async throws {
    let (notes, tags) = (try place.namespaced("notes"), try place.namespaced("tags"))
    try await tags.write(Data("old".utf8), key: key)
    try await place.apply(
      notes.operations([.write(Data("new".utf8), key: key)]) + tags.operations([.remove(key: key)]))
    #expect(try await notes.read(key: key) == Data("new".utf8))
    #expect(try await tags.keyExists(key) == false)

    await expect(.invalidKey) {
      try await place.apply(
        notes.operations([.remove(key: key)]) + tags.operations([.remove(key: .init(verbatim: ""))]))
    }
    await expect(.unsupported) { try await place.apply(notes.operations([.removeAll])) }
    #expect(try await notes.keyExists(key))
  }

  @Test("A transaction across several namespaces is atomic")
  func transactions() async throws {
    struct Refused: Error {}
    let (from, to) = (try place.namespaced("from"), try place.namespaced("to"))
    try await from.write(Data("x".utf8), key: key)
    for isRefused in [true, false] {
      let work = { [key] () async throws in
        try await place.withTransaction { transaction in
          let (from, to) = (from.transaction(in: transaction), to.transaction(in: transaction))
          guard let value = try from.read(key: key) else { return }
          try to.write(value, key: key)
          try from.removeAll()
          if isRefused { throw Refused() }
        }
      }
      if isRefused { await #expect(throws: Refused.self) { try await work() } } else { try await work() }
      #expect(try await from.keyCount() == (isRefused ? 1 : 0))
      #expect(try await to.keyCount() == (isRefused ? 0 : 1))
    }
  }

  @Test("A namespace's feed reports its own changes, and no others", .timeLimit(.minutes(60)))
  func feed() async throws {
    let (own, other) = (try place.namespaced("a"), try place.namespaced("ab"))
    var changes = try await own.changes().makeAsyncIterator()
    try await other.write(Data(), key: key)
    try await place.write(Data(), key: key)
    try await own.write(Data(), key: key)
    #expect(await changes.next() == .keys([key]))
    // The rest of a truncated key is in the value, which is gone after a removal.
    try await own.remove(key: .init(verbatim: String(repeating: "x", count: 511)))
    try await own.write(Data(), key: .init(verbatim: String(repeating: "x", count: 511)))
    #expect(await changes.next() == .everything)
    try await place.removeAllData()
    #expect(await changes.next() == .everything)
  }

  @Test(
    "Keys of every allowed length are preserved and ordered, page by page",
    arguments: ["a", String(repeating: "n", count: 32)])
  func longKeys(name: String) async throws {
    var random = SeededRandom(seed: 511)
    let engine = try place.namespaced(name)
    let neighbor = try place.namespaced(name == "a" ? "aa" : "n")
    var keys: Set<CacheKey> = []
    // Keys with long common prefixes that differ around the truncation point, in scalars of all lengths.
    let beginnings = ["x", "é", "\u{10FFFF}"].map { String(repeating: $0, count: 511 / $0.utf8.count) }
    while keys.count < 400 {
      let length = Int.random(in: 400...511, using: &random)
      var text = ""
      for scalar in (beginnings.randomElement(using: &random) ?? "").unicodeScalars
      where text.utf8.count + UTF8.width(scalar) <= length {
        let other = ["~", "a", "\u{FFFF}", "\u{0}"].randomElement(using: &random) ?? "a"
        let isOther =
          Int.random(in: 0..<200, using: &random) == 0 && text.utf8.count + other.utf8.count <= length
        text += isOther ? other : String(scalar)
      }
      if !text.isEmpty { keys.insert(CacheKey(verbatim: text)) }
    }
    let sorted = keys.sorted()
    try await engine.write(sorted.map { ($0, Data($0.value.utf8)) })
    try await neighbor.write(sorted.map { ($0, Data()) })

    #expect(try await Set(engine.allKeys()) == keys)
    #expect(try await engine.readDataAndKeys(keys: sorted).map(\.key) == sorted)
    #expect(try await engine.read(keys: sorted) == sorted.map { Data($0.value.utf8) })
    #expect(try await engine.keysExist(sorted) == sorted)
    for key in sorted { #expect(try await engine.read(key: key) == Data(key.value.utf8)) }
    for _ in 0..<300 {
      var range = KeyRange(
        after: Bool.random(using: &random) ? sorted.randomElement(using: &random) : nil,
        upTo: Bool.random(using: &random) ? sorted.randomElement(using: &random) : nil)
      if Bool.random(using: &random), let key = sorted.randomElement(using: &random) {
        range.prefix = String(key.value.prefix(Int.random(in: 0...key.value.count, using: &random)))
      }
      let limit = Bool.random(using: &random) ? Int.random(in: 0...20, using: &random) : nil
      let expected = Array(sorted.filter(range.contains).prefix(limit ?? .max))
      #expect(try await engine.scan(range, limit: limit).map(\.key) == expected)
      let found = try await engine.withTransaction { [range] in
        try $0.scan(range, limit: limit).map(\.key)
      }
      #expect(found == expected)
    }
    await expect(.invalidKey) {
      try await engine.write(Data(), key: .init(verbatim: String(repeating: "x", count: 512)))
    }
    await expect(.invalidKey) {
      try await engine.write(Data(), key: .init(verbatim: String(repeating: "x", count: 100_000)))
    }
    await expect(.invalidKey) { _ = try await engine.read(key: .init(verbatim: "")) }

    try await engine.remove(keys: sorted)
    #expect(try await engine.keyCount() == 0)
    #expect(try await neighbor.keyCount() == sorted.count)
  }

  @Test("Removals read no values")
  func removesLargeValues() async throws {
    let place = ScanRecorder()
    let engine = try place.namespaced("a")
    try await engine.write((0..<64).map { (CacheKey(verbatim: "\($0)"), Data(count: 200_000)) })
    try await engine.removeAllData()
    #expect(try await place.keyCount() == 0)
    #expect(place.sizes.withLock { $0 }.isEmpty)
  }

  @Test("A foreign entry under a key of 511 bytes is corrupted")
  func corruption() async throws {
    let engine = try place.namespaced("a")
    let long = CacheKey(verbatim: String(repeating: "x", count: 511))
    try await engine.write(Data("value".utf8), key: long)
    let stored = try #require(try await place.allKeys().first)
    for value in [Data(), Data([1]), Data([0, 0, 1]), Data([255, 255, 1]), Data([1, 0, 255])] {
      try await place.write(value, key: stored)
      await expect(.corrupted) { _ = try await engine.read(key: long) }
      await expect(.corrupted) { _ = try await engine.allKeys() }
      await expect(.corrupted) { _ = try await engine.scan(.all, limit: 1) }
      await expect(.corrupted) { _ = try await engine.readAllEntries() }
      await expect(.corrupted) { try await engine.verify() }
    }
  }

  @Test("verify() detects swapped values under keys of 511 bytes")
  func exchange() async throws {
    let engine = try place.namespaced("a")
    let long = ["x", "y"].map { CacheKey(verbatim: String(repeating: $0, count: 511)) }
    try await engine.write(long.map { ($0, Data($0.value.utf8.prefix(1))) })
    try await engine.verify()
    let stored = try await place.readAllDataAndKeys()
    try await place.write([(stored[0].key, stored[1].data), (stored[1].key, stored[0].data)])
    await expect(.corrupted) { try await engine.verify() }
  }

  @Test("A namespace with a corrupted value can be emptied (rule D2)")
  func emptying() async throws {
    let engine = try place.checksummed().namespaced("a")
    let (key, other) = (CacheKey(verbatim: "key"), CacheKey(verbatim: "other"))
    for empty in [
      { try await engine.removeAllData() },
      { try await engine.apply([.removeAll, .write(Data([1]), key: other)]) },
    ] as [@Sendable () async throws -> Void] {
      try await engine.write(Data([1]), key: key)
      try await place.write(Data([1]), key: try #require(try await place.allKeys().first))
      await expect(.corrupted) { _ = try await engine.read(key: key) }
      try await empty()
      #expect(try await engine.keysExist([key, other]).contains(key) == false)
    }
    #expect(try await engine.read(key: other) == Data([1]))
  }

  @Test("A corrupted value makes only its own namespace unreadable", arguments: [true, false])
  func corruptionOfNeighbors(ordersKeys: Bool) async throws {
    let below = WithoutCapabilities(base: place.checksummed(), capabilities: ordersKeys ? [] : .orderedScans)
    let (engine, neighbor) = (try below.namespaced("a"), try below.namespaced("b"))
    let keys = ["z", "y", "x"].map { CacheKey(verbatim: $0) }
    for key in keys { try await engine.write(Data(key.value.utf8), key: key) }
    try await neighbor.write(Data([1]), key: keys[0])
    let stored = try #require(try await place.allKeys().first { $0.value.hasPrefix("b") })
    try await place.write(Data([1]), key: stored)
    await expect(.corrupted) { _ = try await neighbor.readAllEntries() }
    #expect(try await engine.readAllEntries().map(\.key) == keys)
    #expect(try await Set(engine.readAllData()) == Set(keys.map { Data($0.value.utf8) }))
    #expect(try await engine.allKeys().count == 3)
  }

  @Test("Beside a corrupted neighbor, a bulk read still returns a snapshot during concurrent writes")
  func snapshotBesideCorruption() async throws {
    let below = place.checksummed()
    let (one, two) = (CacheKey(verbatim: "1"), CacheKey(verbatim: "2"))
    let (plain, neighbor) = (try below.namespaced("a"), try below.namespaced("b"))
    try await plain.write(Data([1]), key: one)
    try await neighbor.write(Data([1]), key: one)
    let stored = try #require(try await place.allKeys().first { $0.value.hasPrefix("b") })
    try await place.write(Data([1]), key: stored)
    // Exactly one entry exists at any time: under one key or the other.
    let isFirst = MutexProtected(true)
    let late = AnswersLate(base: below) {
      let (from, to) = isFirst.withLock { isFirst in
        isFirst.toggle()
        return isFirst ? (two, one) : (one, two)
      }
      try await plain.apply([.remove(key: from), .write(Data([1]), key: to)])
    }
    let engine = try late.namespaced("a")
    for _ in 0..<3 {
      #expect(try await engine.readAllEntries().count == 1)
      #expect(try await engine.readAllDataAndKeys().count == 1)
    }
    // A read completes although entries are added during each attempt.
    let growing = try AnswersLate(base: below) {
      try await plain.write(Data([1]), key: CacheKey(verbatim: UUID().uuidString))
    }.namespaced("a")
    let (before, entries) = (try await plain.keyCount(), try await growing.readAllEntries())
    #expect(entries.count > before)
    #expect(Set(entries.map(\.key)).count == entries.count)
  }

  @Test(
    "A foreign entry with an unknown key or format makes only its own namespace unreadable",
    arguments: [StorageError.Code.permissionDenied, .unsupported])
  func unreadableNeighbors(_ code: StorageError.Code) async throws {
    let below = Refuses(base: place, value: Data([2]), code: code)
    let (engine, neighbor) = (try below.namespaced("a"), try below.namespaced("b"))
    let key = CacheKey(verbatim: "k")
    try await engine.write(Data([1]), key: key)
    try await neighbor.write(Data([2]), key: key)
    await expect(code) { _ = try await neighbor.readAllEntries() }
    #expect(try await engine.readAllEntries().map(\.data) == [Data([1])])
    #expect(try await engine.readAllData() == [Data([1])])
  }

  @Test("Stores of different types can share one database, and it can be reopened")
  func stores() async throws {
    struct Note: Codable, Sendable, Identifiable, Equatable { let id: Int }
    struct Tag: Codable, Sendable, Identifiable, Equatable { let id: String }
    let directory = try TemporaryDirectory()
    for round in 0..<2 {
      let place = try SQLiteStorageEngine(directory: .init(url: directory.url))
      let notes = try await Store<Note>(storage: place.namespaced("notes"))
      let tags = try await Store<Tag>(storage: place.namespaced("tags"))
      if round == 0 {
        try await notes.insert([Note(id: 1), Note(id: 2)])
        try await tags.insert([Tag(id: "1"), Tag(id: "a"), Tag(id: "b")])
        try await notes.removeAll()
        try await notes.insert(Note(id: 3))
      }
      #expect(await notes.items == [Note(id: 3)])
      #expect(await tags.items == [Tag(id: "1"), Tag(id: "a"), Tag(id: "b")])
      try await place.close()
    }
  }
}

/// An engine that records the number of value bytes that each scan in a transaction returns.
private final class ScanRecorder: StorageLayer {
  let base = MemoryStorageEngine()
  let sizes = MutexProtected<[Int]>([])

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    try await base.withTransaction { [self] in try body(RecordingTransaction(base: $0, recorder: self)) }
  }
}

private final class RecordingTransaction: StorageTransaction {
  private let base: any StorageTransaction
  private let recorder: ScanRecorder

  init(base: any StorageTransaction, recorder: ScanRecorder) { (self.base, self.recorder) = (base, recorder) }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    let found = try base.scan(range, limit: limit)
    let size = found.reduce(0) { $0 + $1.data.count }
    recorder.sizes.withLock { $0.append(size) }
    return found
  }

  func read(key: CacheKey) throws -> Data? { try base.read(key: key) }
  func read(keys: [CacheKey]) throws -> [Data] { try base.read(keys: keys) }
  func keyExists(_ key: CacheKey) throws -> Bool { try base.keyExists(key) }
  func keyCount() throws -> Int { try base.keyCount() }
  func allKeys() throws -> [CacheKey] { try base.allKeys() }
  func write(_ data: Data, key: CacheKey) throws { try base.write(data, key: key) }
  func remove(key: CacheKey) throws { try base.remove(key: key) }
  func removeAll() throws { try base.removeAll() }
}

/// A layer that cannot read one value.
private struct Refuses<Base: StorageEngine>: ValueLayer {
  let base: Base
  let value: Data
  let code: StorageError.Code
  var capabilities: EngineCapabilities { base.capabilities }

  func encode(_ value: Data, key: CacheKey) throws -> Data { value }

  func decode(_ stored: Data, key: CacheKey) throws -> Data {
    if stored == value { throw StorageError(code, "The value of \(key) cannot be read here.") }
    return stored
  }
}
