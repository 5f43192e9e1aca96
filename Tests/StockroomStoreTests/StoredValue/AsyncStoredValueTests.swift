import Foundation
import Observation
import StockroomCore
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

private let engine = MemoryStorageEngine()

private struct Editor {
  @AsyncStoredValue(storage: engine, key: "draft") var draft = RedPanda(cuteRating: 1)
  @AsyncStoredValue(storage: engine, key: "theme") var theme: Theme?
  @AsyncStoredValue<Int?>(storage: .memory(), key: "number") var number
}

@MainActor @Observable private final class Controller {
  @ObservationIgnored @AsyncStoredValue(storage: MemoryStorageEngine(), key: "theme") var theme = Theme.light
}

@Suite struct AsyncStoredValueTests {
  private let directory: TemporaryDirectory
  init() throws { directory = try TemporaryDirectory() }

  @Test("Declarations in structs and classes compile and return the defaults")
  @MainActor func declarations() async throws {
    let editor = Editor()
    #expect(editor.draft == RedPanda(cuteRating: 1))
    #expect(editor.theme == nil)
    #expect(editor.number == nil)
    let controller = Controller()
    try await controller.$theme.set(.dark)
    #expect(controller.theme == .dark)
  }

  @Test("Every operation works on every engine", arguments: AnyEngine.all)
  func operations(_ kind: AnyEngine) async throws {
    let engine = try await kind.open(directory)
    @AsyncStoredValue(storage: engine, key: "panda") var panda = RedPanda(cuteRating: 1, name: "Pabu")
    try await $panda.set(\.cuteRating, to: 99)
    #expect(panda == RedPanda(cuteRating: 99, name: "Pabu"))
    try await $panda.update { $0.name = nil }
    #expect(panda == RedPanda(cuteRating: 99))
    try await $panda.reset()
    try await $panda.reset()
    #expect(panda == RedPanda(cuteRating: 1, name: "Pabu"))
    #expect(try await engine.allKeys().isEmpty)

    @AsyncStoredValue(storage: engine, key: "flag") var flag = false
    try await $flag.toggle()
    #expect(flag)

    @AsyncStoredValue(storage: engine, key: "list") var list = ["a"]
    try await $list.replace("x", with: "y")
    #expect(try await engine.keyExists(CacheKey(verbatim: "list")) == false)
    try await $list.append("b")
    try await $list.replace("a", with: "c")
    try await $list.togglePresence("b")
    try await $list.togglePresence("d")
    #expect(list == ["c", "d"])

    @AsyncStoredValue(storage: engine, key: "dictionary") var dictionary = ["a": 1]
    try await $dictionary.update(key: "b", value: 2)
    try await $dictionary.update(key: "a", value: nil)
    #expect(dictionary == ["b": 2])
  }

  @Test("A stored value is loaded after a restart", arguments: AnyEngine.persistent)
  func restart(_ kind: AnyEngine) async throws {
    let engine = try await kind.open(directory)
    @AsyncStoredValue(storage: engine, key: "theme") var theme: Theme = .light
    try await $theme.set(.dark)
    try await engine.close()

    @AsyncStoredValue(storage: try await kind.open(directory), key: "theme") var again: Theme = .light
    #expect(try await $again.get() == .dark)
    #expect(again == .dark)
  }

  @Test("No concurrent append is lost, in memory or in the engine", arguments: AnyEngine.all)
  func concurrentAppends(_ kind: AnyEngine) async throws {
    let engine = try await kind.open(directory)
    let value = AsyncStoredValue(wrappedValue: [Int](), storage: engine, key: "list")
    try await withThrowingTaskGroup { group in
      for number in 0..<1000 { group.addTask { try await value.append(number) } }
      try await group.waitForAll()
    }
    #expect(value.wrappedValue.sorted() == Array(0..<1000))
    let stored = try #require(try await engine.read(key: CacheKey(verbatim: "list")))
    #expect(try JSONDecoder().decode([Int].self, from: stored) == value.wrappedValue)
  }

  @Test("The value loads in the background, and observers and streams receive it")
  func loading() async throws {
    let held = SwitchableEngine()
    try await held.write(Data("5".utf8), key: CacheKey(verbatim: "number"))
    await held.hold()
    let value = AsyncStoredValue(wrappedValue: 0, storage: held, key: "number")
    let changes = ChangeCounter { _ = value.wrappedValue }
    let stream = value.values
    #expect(value.wrappedValue == 0)
    await held.release()
    #expect(await stream.prefix(2).reduce(into: []) { $0.append($1) } == [0, 5])
    try await value.valueHasLoaded()
    #expect(changes.count == 1)
  }

  @Test("Keys of any length and content are distinct")
  func keys() async throws {
    let engine = MemoryStorageEngine()
    let keys = ["", " ", "../a", "a\0b", "é", "e\u{301}", String(repeating: "k", count: 10_000)]
    for (number, key) in keys.enumerated() {
      try await AsyncStoredValue(wrappedValue: -1, storage: engine, key: key).set(number)
    }
    for (number, key) in keys.enumerated() {
      #expect(try await AsyncStoredValue(wrappedValue: -1, storage: engine, key: key).get() == number)
    }
    #expect(try await engine.keyCount() == keys.count)
  }

  @Test("A custom codec is used for writing and reading")
  func codec() async throws {
    let engine = MemoryStorageEngine()
    let value = AsyncStoredValue<[Theme]>(
      wrappedValue: [], storage: engine, key: "themes", codec: PropertyListCodec())
    try await value.append(.dark)
    let bytes = try #require(try await engine.read(key: CacheKey(verbatim: "themes")))
    #expect(try PropertyListDecoder().decode([Theme].self, from: bytes) == [.dark])
  }

  @Test("Each operation is one change, for observers and in a stream")
  func changes() async throws {
    let value = AsyncStoredValue(wrappedValue: 0, storage: MemoryStorageEngine(), key: "number")
    let changes = ChangeCounter { _ = value.wrappedValue }
    let stream = value.values
    try await value.set(1)
    try await value.set(1)
    try await value.update { $0 += 1 }
    try await value.reset()
    try await value.reset()
    #expect(changes.count == 3)
    #expect(await stream.prefix(4).reduce(into: []) { $0.append($1) } == [0, 1, 2, 0])
  }

  @Test("A stream ends with its object, and one that buffers only the newest yields the current value")
  func streams() async throws {
    var value: AsyncStoredValue? = AsyncStoredValue(wrappedValue: 0, storage: MemoryStorageEngine(), key: "n")
    let all = try #require(value?.values)
    let newest = try #require(value?.values(bufferingPolicy: .bufferingNewest(1)))
    for number in 1...10 { try await value?.set(number) }
    value = nil
    #expect(await all.reduce(into: []) { $0.append($1) } == Array(0...10))
    #expect(await newest.reduce(into: []) { $0.append($1) } == [10])
  }

  @Test("Thousands of subscribers that subscribe during changes miss none after the first element")
  func subscribing() async throws {
    let value = AsyncStoredValue(wrappedValue: 0, storage: MemoryStorageEngine(), key: "number")
    let changing = Task {
      while !Task.isCancelled { try await value.update { $0 += 1 } }
    }
    for _ in 0..<20 {
      let streams = (0..<500).map { _ in value.values(bufferingPolicy: .bufferingOldest(2)) }
      for stream in streams {
        let numbers = await stream.prefix(2).reduce(into: []) { $0.append($1) }
        let first = try #require(numbers.first)
        #expect(numbers == [first, first + 1])
      }
    }
    changing.cancel()
    _ = await changing.result
  }
}
