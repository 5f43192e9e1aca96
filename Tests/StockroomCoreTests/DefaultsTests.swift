import Foundation
import StockroomCore
import Testing

/// A minimal engine: the six required methods, in an actor, without `throws` where nothing can fail.
private actor MinimalEngine: StorageEngine {
  var entries: [CacheKey: (data: Data, createdAt: Date, updatedAt: Date)] = [:]
  var reads = 0
  var beforeWriting: (@Sendable () -> Void)?

  func prepare(_ action: @escaping @Sendable () -> Void) { beforeWriting = action }

  func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    try Task.checkCancellation()
    beforeWriting?()
    entries[key] = (data, entries[key]?.createdAt ?? .now, .now)
  }
  func read(key: CacheKey) throws -> Data? {
    try key.validate()
    reads += 1
    return entries[key]?.data
  }
  func remove(key: CacheKey) throws {
    try key.validate()
    entries[key] = nil
  }
  func allKeys() -> [CacheKey] { Array(entries.keys) }
  func createdAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return entries[key]?.createdAt
  }
  func updatedAt(key: CacheKey) throws -> Date? {
    try key.validate()
    return entries[key]?.updatedAt
  }
}

@Suite struct DefaultsTests {
  let engine: any StorageEngine = MinimalEngine()
  let keys = ["c", "a", "b"].map(CacheKey.init(verbatim:))
  let invalid = CacheKey(verbatim: "")
  func data(_ text: String) -> Data { Data(text.utf8) }

  func fill() async throws {
    try await engine.write(keys.map { (key: $0, data: data($0.value)) })
  }

  @Test("Bulk reads keep the order and repeats of the request, and omit absent keys")
  func readMany() async throws {
    try await fill()
    let request = [keys[2], CacheKey(verbatim: "absent"), keys[0], keys[2]]
    #expect(try await engine.read(keys: request) == [data("b"), data("c"), data("b")])
    #expect(try await engine.readDataAndKeys(keys: request).map(\.key.value) == ["b", "c", "b"])
    #expect(try await engine.keysExist(request).map(\.value) == ["b", "c", "b"])
  }

  @Test("All entries can be read, counted and removed")
  func everything() async throws {
    try await fill()
    #expect(Set(try await engine.readAllData()) == Set(["a", "b", "c"].map(data)))
    #expect(Set(try await engine.readAllDataAndKeys().map(\.key)) == Set(keys))
    #expect(try await engine.keyCount() == 3)
    #expect(try await engine.keyExists(keys[0]))
    try await engine.remove(keys: [keys[0], CacheKey(verbatim: "absent")])
    #expect(try await engine.keyExists(keys[0]) == false)
    try await engine.removeAllData()
    #expect(try await engine.keyCount() == 0)
  }

  @Test("All entries are returned in order of creation")
  func entries() async throws {
    try await fill()
    try await engine.write(data("again"), key: keys[0])
    let entries = try await engine.readAllEntries()
    #expect(entries.map(\.key) == keys)
    #expect(entries[0].data == data("again"))
    #expect(entries[0].createdAt <= entries[0].updatedAt)
  }

  @Test("A scan is in byte order and reads no more than it returns")
  func scan() async throws {
    let engine = MinimalEngine()
    for number in 100..<200 {
      try await engine.write(data("\(number)"), key: CacheKey(verbatim: "\(number)"))
    }
    let found = try await engine.scan(KeyRange(after: CacheKey(verbatim: "149"), upTo: nil), limit: 3)
    #expect(found.map(\.key.value) == ["150", "151", "152"])
    #expect(await engine.reads == 3)
    #expect(try await engine.scan(.all, limit: 0).isEmpty)
    #expect(try await engine.scan(.all, limit: -1).isEmpty)
    #expect(try await engine.scan(.prefix("19"), limit: nil).count == 10)
  }

  @Test("Operations are applied in order")
  func apply() async throws {
    try await fill()
    try await engine.apply([
      .write(data("x"), key: keys[0]), .removeAll, .write(data("y"), key: keys[1]), .remove(key: keys[2]),
      .write(data("z"), key: keys[1]),
    ])
    #expect(try await engine.readAllDataAndKeys().map(\.key) == [keys[1]])
    #expect(try await engine.read(key: keys[1]) == data("z"))
  }

  @Test("One invalid key rejects a whole batch")
  func invalidKeys() async throws {
    try await fill()
    let expected = StorageError.Code.invalidKey
    func code(_ body: () async throws -> Void) async -> StorageError.Code? {
      await #expect(throws: StorageError.self) { try await body() }?.code
    }
    #expect(
      await code {
        try await engine.write([(key: CacheKey(verbatim: "new"), data: Data()), (key: invalid, data: Data())])
      } == expected)
    #expect(await code { try await engine.remove(keys: [keys[0], invalid]) } == expected)
    #expect(await code { try await engine.apply([.removeAll, .remove(key: invalid)]) } == expected)
    #expect(await code { _ = try await engine.read(keys: [keys[0], invalid]) } == expected)
    #expect(await code { _ = try await engine.keysExist([keys[0], invalid]) } == expected)
    #expect(
      await code { _ = try await engine.scan(KeyRange(after: invalid, upTo: nil), limit: 1) } == expected)
    #expect(Set(try await engine.allKeys()) == Set(keys))
  }

  @Test(
    "A batch that is cancelled during the write is completed, and one that is cancelled before writes nothing"
  )
  func cancellation() async throws {
    let engine = MinimalEngine()
    let batch = keys.map { (key: $0, data: Data()) }
    let cancelled = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await engine.write(batch)
    }
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    #expect(await engine.allKeys().isEmpty)

    let (signal, underWay) = AsyncStream.makeStream(of: Void.self)
    let task = Task {
      for await _ in signal { break }
      try await engine.write(batch)
    }
    await engine.prepare { task.cancel() }
    underWay.yield()
    try await task.value
    #expect(await engine.allKeys().count == batch.count)
  }

  @Test("An entry without timestamps throws, and is not omitted")
  func missingTimestamps() async throws {
    let engine = WithoutTimestamps()
    for read in [{ _ = try await engine.readAllEntries() }, { try await engine.verify() }] {
      let error = await #expect(throws: StorageError.self) { try await read() }
      #expect(error?.code == .corrupted)
      #expect(error?.description.contains("there") == true)
    }
  }

  @Test("A bulk read lets other tasks run, even if the engine never suspends")
  @MainActor func givingWay() async throws {
    let engine = SlowWithoutSuspending()
    var othersRan = false
    // Both tasks run on the main actor, so the second runs only if the first suspends.
    let other = Task { othersRan = true }
    _ = try await engine.read(keys: [CacheKey](repeating: keys[0], count: 10))
    #expect(othersRan)
    await other.value
  }

  @Test(
    "An engine that implements only the required methods has no capabilities, and can be verified and closed")
  func rest() async throws {
    #expect(engine.capabilities == [])
    try await engine.verify()
    try await engine.close()
  }
}

/// An engine without timestamps that never suspends.
private struct WithoutTimestamps: StorageEngine {
  func write(_ data: Data, key: CacheKey) {}
  func read(key: CacheKey) -> Data? { key.value == "there" ? Data() : nil }
  func remove(key: CacheKey) {}
  func allKeys() -> [CacheKey] { [CacheKey(verbatim: "there")] }
  func createdAt(key: CacheKey) -> Date? { nil }
  func updatedAt(key: CacheKey) -> Date? { nil }
}

/// An engine whose reads block the caller's thread for a while.
private struct SlowWithoutSuspending: StorageEngine {
  func write(_ data: Data, key: CacheKey) {}
  func read(key: CacheKey) -> Data? {
    let end = ContinuousClock.now + .milliseconds(3)
    while ContinuousClock.now < end {}
    return Data()
  }
  func remove(key: CacheKey) {}
  func allKeys() -> [CacheKey] { [] }
  func createdAt(key: CacheKey) -> Date? { nil }
  func updatedAt(key: CacheKey) -> Date? { nil }
}
