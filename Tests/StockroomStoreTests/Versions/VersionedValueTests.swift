import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

/// Single values of a type that was changed.
@Suite(.timeLimit(.minutes(60))) struct VersionedValueTests {
  private let engine = MemoryStorageEngine()
  private let defaults = TemporaryDefaults()

  private func asynchronous<Item>(of type: Item.Type = Item.self) async throws -> AsyncStoredValue<Item?> {
    let value = AsyncStoredValue<Item?>(storage: engine, key: "note")
    // Whether or not the value can be read.
    do { try await value.valueHasLoaded() } catch {}
    return value
  }

  private func synchronous<Item>(of type: Item.Type = Item.self) throws -> StoredValue<Item?> {
    StoredValue<Item?>(key: "note", storage: try defaults.open())
  }

  @Test("A value of an older version is read, and stored in the newest version by the next change")
  func older() async throws {
    try await asynchronous(of: FirstNote.self).set(FirstNote(id: "a", text: "1"))
    let value = try await asynchronous(of: FourthNote.self)
    #expect(value.wrappedValue == FourthNote(id: "a", lines: ["1"]))
    #expect(try await versions(in: engine) == ["note": "1"])
    try await value.update { _ in }
    #expect(try await versions(in: engine) == ["note": "4"])
    #expect(try await asynchronous(of: FourthNote.self).get() == FourthNote(id: "a", lines: ["1"]))

    try synchronous(of: FirstNote.self).set(FirstNote(id: "a", text: "1"))
    let stored = try synchronous(of: FourthNote.self)
    #expect(stored.wrappedValue == FourthNote(id: "a", lines: ["1"]))
    #expect(try defaults.stored("note")?.first == UInt8(ascii: "{"))
    try stored.update { $0?.isDone = true }
    #expect(try defaults.stored("note")?.first == 0xFF)
    #expect(try synchronous(of: FourthNote.self).get()?.isDone == true)
  }

  @Test("A value of a newer version is not replaced, except by a reset")
  func newer() async throws {
    let note = FourthNote(id: "a", lines: ["new"])
    try await asynchronous(of: FourthNote.self).set(note)
    try synchronous(of: FourthNote.self).set(note)
    func leaveAlone<Item: StorableItem & Equatable>(_ item: Item, newest: Int) async throws {
      let value = try await asynchronous(of: Item.self)
      let stored = try synchronous(of: Item.self)
      #expect(value.wrappedValue == nil && stored.wrappedValue == nil)
      #expect(newerVersion(value.failure) == NewerVersionError(version: 4, newestKnown: newest))
      #expect(newerVersion(stored.failure) == NewerVersionError(version: 4, newestKnown: newest))
      for change in [
        { try await value.set(item) }, { try await value.update { $0 = item } },
        { try stored.set(item) }, { try stored.update { $0 = item } },
      ] as [() async throws -> Void] {
        let error = await #expect(throws: StorageError.self) { try await change() }
        #expect(newerVersion(error) != nil)
      }
    }
    try await leaveAlone(FirstNote(id: "a", text: ""), newest: 1)
    try await leaveAlone(ThirdNote(id: "a", lines: []), newest: 3)
    #expect(try await asynchronous(of: FourthNote.self).get() == note)
    #expect(try synchronous(of: FourthNote.self).get() == note)

    try await asynchronous(of: ThirdNote.self).reset()
    try synchronous(of: ThirdNote.self).reset()
    #expect(try await engine.keyCount() == 0 && defaults.stored("note") == nil)
  }

  @Test("A newer version stored while an older program runs makes the value unreadable there")
  func follows() async throws {
    let older = try await asynchronous(of: ThirdNote.self)
    try await older.set(ThirdNote(id: "a", lines: []))
    try await asynchronous(of: FourthNote.self).set(FourthNote(id: "a", lines: ["new"]))
    while older.failure == nil { await Task.yield() }
    #expect(newerVersion(older.failure)?.version == 4)
    await #expect(throws: StorageError.self) { try await older.set(nil) }
    #expect(try await asynchronous(of: FourthNote.self).get()?.lines == ["new"])
  }

  @Test(
    "A newer version that arrives during a change is not replaced by it, even by a type without versions",
    arguments: [true, false])
  func newerMeanwhile(isUpdate: Bool) async throws {
    let held = FailingStorageEngine(engine)
    let value = AsyncStoredValue(wrappedValue: 0, storage: held, key: "number")
    try await value.set(0)
    held.hold { $0.isWrite }
    let change = Task {
      if isUpdate { try await value.update { $0 += 1 } } else { try await value.set(1) }
    }
    try await held.waitForHeldCalls()
    let newer = Data([0xFF]) + Data("version 2\n2".utf8)
    let key = CacheKey(verbatim: "number")
    try await engine.write(newer, key: key)
    held.release()
    let error = await #expect(throws: StorageError.self) { try await change.value }
    #expect(newerVersion(error) == NewerVersionError(version: 2, newestKnown: 1))
    #expect(try await engine.read(key: key) == newer)
  }

  @Test("A newer version that arrived later is not replaced if the engine reports no changes")
  func newerLater() async throws {
    let engine = MinimalEngine()
    let value = AsyncStoredValue<FirstNote?>(storage: engine, key: "note")
    try await value.set(FirstNote(id: "a", text: "1"))
    let note = FourthNote(id: "a", lines: ["new"])
    try await AsyncStoredValue<FourthNote?>(storage: engine, key: "note").set(note)
    for change in [
      { try await value.set(FirstNote(id: "a", text: "2")) }, { try await value.update { $0?.text = "2" } },
    ] as [() async throws -> Void] {
      let error = await #expect(throws: StorageError.self) { try await change() }
      #expect(newerVersion(error) != nil)
    }
    #expect(try await AsyncStoredValue<FourthNote?>(storage: engine, key: "note").get() == note)
  }
}
