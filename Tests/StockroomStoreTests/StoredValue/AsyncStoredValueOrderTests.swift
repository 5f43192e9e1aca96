import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

@Suite struct AsyncStoredValueOrderTests {
  private let engine = SwitchableEngine()
  private let key = CacheKey(verbatim: "list")

  @Test("Operations are done in the order of the calls, and not before the value has loaded")
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

  @Test("A call that is cancelled before its turn does nothing, and the others go on")
  @MainActor func cancellation() async throws {
    await engine.hold()
    let value = AsyncStoredValue(wrappedValue: [Int](), storage: engine, key: "list")
    let tasks = (0..<10).map { number in Task { @MainActor in try await value.append(number) } }
    let replacing = Task { @MainActor in try await value.set([]) }
    for number in [0, 3, 9] { tasks[number].cancel() }
    replacing.cancel()
    await engine.release()
    for (number, task) in tasks.enumerated() where ![0, 3, 9].contains(number) { try await task.value }
    for number in [0, 3, 9] {
      await #expect(throws: CancellationError.self) { try await tasks[number].value }
    }
    await #expect(throws: CancellationError.self) { try await replacing.value }
    #expect(value.wrappedValue == [1, 2, 4, 5, 6, 7, 8])
    #expect(try await engine.read(key: key) == Data("[1,2,4,5,6,7,8]".utf8))
  }

  @Test("The value changes once the engine has acknowledged it, not before")
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

  @Test("A call on the main actor leaves it while encoding")
  @MainActor func offTheMainActor() async throws {
    struct NotOnMain: Codable, Equatable {
      var number = 0
      init() {}
      init(from decoder: any Decoder) throws {
        #expect(!Thread.isMainThread)
        number = try decoder.singleValueContainer().decode(Int.self)
      }
      func encode(to encoder: any Encoder) throws {
        #expect(!Thread.isMainThread)
        var container = encoder.singleValueContainer()
        try container.encode(number)
      }
    }
    let value = AsyncStoredValue(wrappedValue: NotOnMain(), storage: MemoryStorageEngine(), key: "list")
    try await value.update { $0.number = 5 }
    try await value.set(\.number, to: 6)
    #expect(value.wrappedValue.number == 6)
  }
}
