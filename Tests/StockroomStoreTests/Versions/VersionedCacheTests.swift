import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

/// Caches of a type with several versions.
@Suite struct VersionedCacheTests {
  private let engine = MemoryStorageEngine()

  private func cache<Value>(of type: Value.Type = Value.self, _ clock: ManualClock = ManualClock())
    -> PersistentCache<String, Value>
  { PersistentCache(storage: engine, namespace: "notes", now: clock.now) }

  @Test("Values of older versions are read, and rewritten with their expiry")
  func rewriting() async throws {
    let clock = ManualClock()
    try await cache(of: FirstNote.self, clock).store(
      FirstNote(id: "a", text: "1"), forKey: "a", expiresIn: 60)
    try await cache(of: [ThirdNote].self, clock).store([ThirdNote(id: "b", lines: [])], forKey: "b")
    try await cache(of: FourthNote.self, clock).store(FourthNote(id: "c", lines: []), forKey: "c")
    try await engine.write(Data("another user of the engine".utf8), key: key("other"))
    let notes = cache(of: FourthNote.self, clock)
    #expect(try await notes["a"] == FourthNote(id: "a", lines: ["1"]))
    #expect(await code { try await notes["b"] } == .decodingFailed)

    let result = try await notes.rewriteOldVersions()
    #expect(result.rewritten == 1 && result.unreadable.count == 1)
    #expect(try await notes.rewriteOldVersions().rewritten == 0)
    let fresh = cache(of: FourthNote.self, clock)
    #expect(try await fresh[item: "a"]?.expiresAt == clock.now() + 60)
    let error = await #expect(throws: StorageError.self) { try await cache(of: FirstNote.self, clock)["a"] }
    #expect(newerVersion(error) == NewerVersionError(version: 4, newestKnown: 1))
    #expect(try await engine.read(key: key("other")) == Data("another user of the engine".utf8))
  }

  @Test("fetch loads a value in place of one of a newer version, and does not store it")
  func fetch() async throws {
    let clock = ManualClock()
    let note = FourthNote(id: "a", lines: ["new"])
    try await cache(of: FourthNote.self, clock).store(note, forKey: "a", expiresIn: 60)
    let older = cache(of: ThirdNote.self, clock)
    for text in ["1", "2"] {
      #expect(
        try await older.fetch("a") { ThirdNote(id: "a", lines: [text]) } == ThirdNote(id: "a", lines: [text]))
      try await older.sync()
      #expect(try await cache(of: FourthNote.self, clock)["a"] == note)
    }
    let error = await #expect(throws: StorageError.self) { try await older["a"] }
    #expect(newerVersion(error) != nil)
    // An expired value is not preserved.
    clock.advance(by: 61)
    #expect(try await older["a"] == nil)
    _ = try await older.fetch("a") { ThirdNote(id: "a", lines: ["3"]) }
    try await older.sync()
    #expect(try await cache(of: FourthNote.self, clock)["a"]?.lines == ["3"])
  }

  @Test("A value of a newer version is replaced and removed on request")
  func explicit() async throws {
    let newer = { cache(of: FourthNote.self) }
    let older = cache(of: ThirdNote.self)
    try await newer().store(FourthNote(id: "a", lines: ["new"]), forKey: "a")
    try await older.store(ThirdNote(id: "a", lines: ["old"]), forKey: "a")
    #expect(try await newer()["a"]?.lines == ["old"])
    try await newer().store(FourthNote(id: "a", lines: ["new"]), forKey: "a")
    try await older.removeValue(forKey: "a")
    #expect(try await newer()["a"] == nil)
  }

  @Test("Rewriting is ordered with the cache's writes, even on an engine without transactions")
  func order() async throws {
    let hooked = HookedEngine(MinimalEngine())
    let before = PersistentCache<String, FirstNote>(storage: hooked, storageLimit: CacheLimit(bytes: 4_000))
    for index in 0..<10 {
      try await before.store(FirstNote(id: "\(index)", text: "old"), forKey: "\(index)")
    }
    let cache = PersistentCache<String, FourthNote>(storage: hooked, storageLimit: CacheLimit(bytes: 4_000))
    // Between the read and the write of the rewriting.
    hooked.afterScan {
      cache.assign(FourthNote(id: "0", lines: ["assigned"]), forKey: "0")
      hooked.afterScan(nil)
    }
    #expect(try await cache.rewriteOldVersions().rewritten == 9)
    let fresh = PersistentCache<String, FourthNote>(storage: hooked)
    #expect(try await fresh["0"]?.lines == ["assigned"])
    for index in 1..<10 { #expect(try await fresh["\(index)"]?.lines == ["old"]) }
  }
}
