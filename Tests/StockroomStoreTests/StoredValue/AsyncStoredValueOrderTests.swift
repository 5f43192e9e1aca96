import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@Suite struct AsyncStoredValueOrderTests {
  private let engine = SwitchableEngine()
  private let key = CacheKey(verbatim: "list")

  @Test("Operations run in the order of the calls, and not before the value has loaded")
  @MainActor func callOrder() async throws {
    try await engine.write(Data("[-1]".utf8), key: key)
    await engine.hold()
    let value = AsyncStoredValue(wrappedValue: [Int](), storage: engine, key: "list")
    let (begun, begin) = AsyncStream.makeStream(of: Void.self)
    let tasks = (0..<100).map { number in
      Task { @MainActor in
        begin.yield()
        try await value.append(number)
      }
    }
    for await _ in begun.prefix(tasks.count) {}
    #expect(value.wrappedValue == [])
    await engine.release()
    for task in tasks { try await task.value }
    #expect(value.wrappedValue == Array(-1..<100))
  }

  @Test("A call that is cancelled before its turn has no effect, and the others proceed")
  @MainActor func cancellation() async throws {
    await engine.hold()
    let value = AsyncStoredValue(wrappedValue: [Int](), storage: engine, key: "list")
    let tasks = (0..<10).map { number in Task { @MainActor in try await value.append(number) } }
    let replacing = Task { @MainActor in try await value.set([]) }
    for number in [0, 3, 9] { tasks[number].cancel() }
    replacing.cancel()
    let closure = Task { @MainActor in
      try await value.update { _ in Issue.record("A cancelled call must not begin.") }
    }
    closure.cancel()
    await engine.release()
    for (number, task) in tasks.enumerated() where ![0, 3, 9].contains(number) { try await task.value }
    for number in [0, 3, 9] {
      await #expect(throws: CancellationError.self) { try await tasks[number].value }
    }
    await #expect(throws: CancellationError.self) { try await replacing.value }
    await #expect(throws: CancellationError.self) { try await closure.value }
    #expect(value.wrappedValue == [1, 2, 4, 5, 6, 7, 8])
    #expect(try await engine.read(key: key) == Data("[1,2,4,5,6,7,8]".utf8))
  }

  @Test("The value changes once the engine has acknowledged the change, not before")
  @MainActor func acknowledged() async throws {
    let value = AsyncStoredValue(wrappedValue: [Int](), storage: engine, key: "list")
    try await value.valueHasLoaded()
    await engine.hold()
    let (begun, begin) = AsyncStream.makeStream(of: Void.self)
    let task = Task { @MainActor in
      begin.yield()
      try await value.set([1])
    }
    for await _ in begun.prefix(1) {}
    #expect(value.wrappedValue == [])
    await engine.release()
    try await task.value
    #expect(value.wrappedValue == [1])
  }

  @Test("Encoding and decoding for a call on the main actor run off it")
  @MainActor func offTheMainActor() async throws {
    try await engine.write(Data("5".utf8), key: key)
    DispatchQueue.main.setSpecific(key: MainQueueAvoidingCodec.isMain, value: true)
    defer { DispatchQueue.main.setSpecific(key: MainQueueAvoidingCodec.isMain, value: nil) }
    try #require(DispatchQueue.getSpecific(key: MainQueueAvoidingCodec.isMain) == true)
    let value = AsyncStoredValue(
      wrappedValue: 0, storage: engine, key: "list", codec: MainQueueAvoidingCodec())
    try await value.update { $0 += 1 }
    try await value.set(value.wrappedValue + 1)
    #expect(value.wrappedValue == 7)
  }
}

private struct MainQueueAvoidingCodec: Codec {
  static let isMain = DispatchSpecificKey<Bool>()

  func encode(_ value: some Encodable) throws -> Data {
    #expect(DispatchQueue.getSpecific(key: Self.isMain) == nil)
    return try JSONEncoder().encode(value)
  }

  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    #expect(DispatchQueue.getSpecific(key: Self.isMain) == nil)
    return try JSONDecoder().decode(type, from: data)
  }
}
