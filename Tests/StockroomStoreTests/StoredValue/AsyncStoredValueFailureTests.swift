import Foundation
import StockroomCore
import StockroomLayers
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import TestFixtures
import Testing

@Suite struct AsyncStoredValueFailureTests {
  private let directory: TemporaryDirectory
  private let key = CacheKey(verbatim: "list")
  init() throws { directory = try TemporaryDirectory() }

  private func operations(on value: AsyncStoredValue<[String]>) -> [() async throws -> Void] {
    [
      { try await value.append("a") }, { try await value.replace("a", with: "b") },
      { try await value.togglePresence("a") }, { try await value.set(\.[0], to: "a") },
      { try await value.update { $0 = [] } }, { try await value.valueHasLoaded() },
      { _ = try await value.get() },
    ]
  }

  @Test("With a closed engine every operation throws, and the value is unchanged", arguments: AnyEngine.all)
  func closed(_ kind: AnyEngine) async throws {
    let engine = try await kind.open(directory)
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["a"])
    let changes = ChangeCounter { _ = value.wrappedValue }
    let unloaded = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "absent")
    try await unloaded.valueHasLoaded()
    try await engine.close()
    for operation in [
      { try await value.append("b") }, { try await value.reset() }, { try await value.set([]) },
    ] {
      let error = await #expect(throws: StorageError.self) { try await operation() }
      #expect(error?.code == .closed)
    }
    #expect(value.wrappedValue == ["a"])
    #expect(value.failure == nil)
    #expect(changes.count == 0)

    let late = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    for operation in operations(on: late) {
      let error = await #expect(throws: StorageError.self) { try await operation() }
      #expect(error?.code == .closed)
    }
    #expect(late.wrappedValue == ["default"])
    #expect(late.failure?.code == .closed)
  }

  @Test(
    "Bytes that cannot be decoded stay stored, the value is the default, and failure is set",
    arguments: AnyEngine.all)
  func undecodable(_ kind: AnyEngine) async throws {
    let engine = try await kind.open(directory)
    let junk = Data("no JSON at all".utf8)
    try await engine.write(junk, key: key)
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    for operation in operations(on: value) {
      let error = await #expect(throws: StorageError.self) { try await operation() }
      #expect(error?.code == .decodingFailed)
    }
    #expect(value.wrappedValue == ["default"])
    #expect(value.failure?.code == .decodingFailed)
    #expect(try await engine.read(key: key) == junk)

    try await value.set(["a"])
    #expect(value.wrappedValue == ["a"])
    #expect(value.failure == nil)
    try await value.append("b")
    #expect(value.wrappedValue == ["a", "b"])

    try await engine.write(junk, key: key)
    let again = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await again.reset()
    #expect(try await again.get() == ["default"])
    #expect(try await engine.read(key: key) == nil)
  }

  @Test("A value that is corrupted in the engine can be replaced only by set", arguments: [true, false])
  func corrupted(hasTransactions: Bool) async throws {
    let base = MemoryStorageEngine()
    try await base.write(Data("?".utf8), key: key)
    let checksummed = base.checksummed()
    let engine: any StorageEngine = hasTransactions ? checksummed : MinimalEngine(checksummed)
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    for operation in operations(on: value) {
      let error = await #expect(throws: StorageError.self) { try await operation() }
      #expect(error?.code == .corrupted)
    }
    #expect(try await base.read(key: key) == Data("?".utf8))
    try await value.set(["a"])
    #expect(value.wrappedValue == ["a"] && value.failure == nil)
    #expect(try await engine.read(key: key) == Data(#"["a"]"#.utf8))
  }

  @Test("A value that cannot be encoded throws and changes nothing")
  func unencodable() async throws {
    let engine = MemoryStorageEngine()
    let value = AsyncStoredValue(wrappedValue: 1.5, storage: engine, key: "list")
    try await value.set(2.5)
    let changes = ChangeCounter { _ = value.wrappedValue }
    for operation in [{ try await value.set(.nan) }, { try await value.update { $0 = .infinity } }] {
      let error = await #expect(throws: StorageError.self) { try await operation() }
      #expect(error?.code == .encodingFailed)
    }
    #expect(value.wrappedValue == 2.5)
    #expect(changes.count == 0)
    #expect(try await engine.read(key: key) == Data("2.5".utf8))
  }

  @Test("A failed load is thrown by the next call, and the call after that retries it")
  func failedLoad() async throws {
    let engine = SwitchableEngine()
    try await engine.write(Data(#"["a"]"#.utf8), key: key)
    await engine.fail(with: StorageError(.io, "The disk is gone."))
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    let failures = ChangeCounter { _ = value.failure }
    while value.failure == nil { await Task.yield() }
    #expect(failures.count <= 1)
    await engine.fail(with: nil)
    let error = await #expect(throws: StorageError.self) { try await value.valueHasLoaded() }
    #expect(error?.code == .io)
    #expect(value.wrappedValue == ["default"])
    try await value.valueHasLoaded()
    #expect(value.wrappedValue == ["a"])
    #expect(value.failure == nil)
  }

  @Test("An update throws if the value could not be loaded, and set replaces it")
  func writeAfterFailedLoad() async throws {
    struct Fault: Error {}
    let engine = SwitchableEngine()
    try await engine.write(Data(#"["a"]"#.utf8), key: key)
    await engine.fail(with: Fault())
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    await #expect(throws: Fault.self) { try await value.append("b") }
    #expect(value.failure?.code == .io && value.failure?.underlying is Fault)
    await #expect(throws: Fault.self) { try await value.set(["c"]) }
    #expect(value.wrappedValue == ["default"])
    await engine.fail(with: nil)
    #expect(try await engine.read(key: key) == Data(#"["a"]"#.utf8))
    try await value.append("b")
    #expect(value.wrappedValue == ["a", "b"])

    await engine.fail(with: Fault())
    let other = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    while other.failure == nil { await Task.yield() }
    await engine.fail(with: nil)
    try await other.set(["c"])
    try await other.valueHasLoaded()
    #expect(other.wrappedValue == ["c"])
    #expect(other.failure == nil)
  }

  @Test("After an operation whose acknowledgement was lost, the value is the stored one")
  func lostAcknowledgement() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["a"])
    let stream = value.values
    let operations: [(() async throws -> Void, [String])] = [
      ({ try await value.append("b") }, ["a", "b"]), ({ try await value.set(["c"]) }, ["c"]),
      ({ try await value.reset() }, ["default"]),
    ]
    for (operation, expected) in operations {
      engine.failCall(1, .afterwards) { $0.isWrite }
      let error = await #expect(throws: StorageError.self) { try await operation() }
      #expect(error?.code == .io)
      #expect(value.wrappedValue == expected)
      #expect(value.failure == nil)
    }
    try await value.append("d")
    #expect(try await engine.read(key: key) == Data(#"["default","d"]"#.utf8))
    let seen = await stream.prefix(5).reduce(into: []) { $0.append($1) }
    #expect(seen == [["a"], ["a", "b"], ["c"], ["default"], ["default", "d"]])
  }

  @Test("If the read after a lost acknowledgement also fails, the next operation reads again")
  func lostAcknowledgementAndReading() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["a"])
    engine.failEveryCall(.afterwards)
    await #expect(throws: StorageError.self) { try await value.append("b") }
    #expect(value.wrappedValue == ["a"])
    await #expect(throws: StorageError.self) { try await value.append("c") }
    engine.clearFaults()
    try await value.append("d")
    #expect(value.wrappedValue == ["a", "b", "d"])
  }

  @Test("A failure with a known outcome causes no read")
  func surelyNothing() async throws {
    let engine = FailingStorageEngine(MemoryStorageEngine())
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["a"])
    let reads = { engine.calls.filter { $0.method == .read }.count }
    let before = reads()
    engine.failEveryCall(with: StorageError(.diskFull, "No room.")) { $0.isWrite }
    await #expect(throws: StorageError.self) { try await value.append("b") }
    #expect(reads() == before)
    #expect(value.wrappedValue == ["a"])
  }

  @Test("The value is unchanged while others' changes cannot be read")
  func unreadChange() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["a"])
    engine.failCall(where: { $0.method == .read })
    try await base.write(JSONEncoder().encode(["b"]), key: key)
    while value.failure == nil, value.wrappedValue == ["a"] { await Task.yield() }
    #expect(value.wrappedValue == ["a"] && value.failure?.code == .io)
    await #expect(throws: StorageError.self) { try await value.update { $0.append("c") } }
    try await value.update { $0.append("c") }
    #expect(value.wrappedValue == ["b", "c"] && value.failure == nil)
  }

  @Test("A value that could not be observed at first is observed and reloaded by a later operation")
  func watchedLater() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    engine.failEveryCall(where: { $0.method == .changes })
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.valueHasLoaded()
    try await base.write(JSONEncoder().encode(["a"]), key: key)
    engine.clearFaults()
    // An attempt that was slow to fail is not repeated immediately.
    while value.wrappedValue == ["default"] { try await value.valueHasLoaded() }
    #expect(value.wrappedValue == ["a"])
    try await base.write(JSONEncoder().encode(["c"]), key: key)
    while value.wrappedValue != ["c"] { await Task.yield() }
  }

  @Test("A value that is unchanged after a failed read is no change for observers and streams")
  func sameAfterFailedRead() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["a"])
    let stream = value.values
    let (changes, failures) = (ChangeCounter { _ = value.wrappedValue }, ChangeCounter { _ = value.failure })
    // Twice, with different errors.
    for number in 1...2 {
      engine.failCall(with: StorageError(.io, "Fault \(number) of the test.")) { $0.method == .read }
      try await base.write(Data(#"["a"]"#.utf8), key: key)
      while value.failure?.message != "Fault \(number) of the test." { await Task.yield() }
    }
    await #expect(throws: StorageError.self) { try await value.valueHasLoaded() }
    try await value.valueHasLoaded()
    #expect(value.wrappedValue == ["a"] && value.failure == nil)
    #expect(changes.count == 0 && failures.count == 3)
    try await value.set(["b"])
    #expect(changes.count == 1)
    let seen = await stream.prefix(2).reduce(into: []) { $0.append($1) }
    #expect(seen == [["a"], ["b"]])
  }

  @Test("A value that changed during a failed read is a change for observers and streams")
  func otherAfterFailedRead() async throws {
    let base = MemoryStorageEngine()
    let engine = FailingStorageEngine(base)
    let value = AsyncStoredValue(wrappedValue: ["default"], storage: engine, key: "list")
    try await value.set(["a"])
    let stream = value.values
    for next in [Data(#"["b"]"#.utf8), Data("?".utf8), Data(#"["b"]"#.utf8), nil] {
      engine.failCall { $0.method == .read }
      if let next { try await base.write(next, key: key) } else { try await base.remove(key: key) }
      while value.failure?.code != .io { await Task.yield() }
      await #expect(throws: StorageError.self) { try await value.valueHasLoaded() }
      _ = try? await value.valueHasLoaded()
    }
    try await value.set(["end"])
    let seen = await stream.prefix { $0 != ["end"] }.reduce(into: []) { $0.append($1) }
    #expect(seen == [["a"], ["b"], ["default"], ["b"], ["default"]])
  }
}
