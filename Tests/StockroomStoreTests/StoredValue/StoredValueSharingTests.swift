import Foundation
import StockroomCore
import StockroomStore
import Testing

@Suite struct StoredValueSharingTests {
  private let defaults = TemporaryDefaults()

  @Test("None of a thousand concurrent appends is lost, on one object, on two, or on two suites of one name")
  func concurrentAppends() async throws {
    let storage = try defaults.open()
    let values = [
      StoredValue<[Int]>(wrappedValue: [], key: "list", storage: storage),
      StoredValue<[Int]>(wrappedValue: [], key: "list", storage: storage),
      StoredValue<[Int]>(wrappedValue: [], key: "list", storage: try defaults.open()),
    ]
    try await withThrowingTaskGroup { group in
      for number in 0..<1000 { group.addTask { try values[number % 3].append(number) } }
      try await group.waitForAll()
    }
    for value in values { #expect(value.wrappedValue.sorted() == Array(0..<1000)) }
  }

  @Test("A thousand and one concurrent toggles leave the flag toggled")
  func concurrentToggles() async throws {
    let values = try (0..<2).map { _ in
      StoredValue(wrappedValue: false, key: "flag", storage: try defaults.open())
    }
    try await withThrowingTaskGroup { group in
      for number in 0..<1001 { group.addTask { try values[number % 2].toggle() } }
      try await group.waitForAll()
    }
    #expect(values.map(\.wrappedValue) == [true, true])
  }

  @Test("Concurrent reads see only complete values that were set")
  func concurrentReads() async throws {
    let value = StoredValue(wrappedValue: [Int](), key: "list", storage: try defaults.open())
    try await withThrowingTaskGroup { group in
      for number in 0..<100 {
        group.addTask { try value.set(Array(repeating: number, count: number)) }
        group.addTask {
          let list = value.wrappedValue
          #expect(list.allSatisfy { $0 == list.count })
          #expect(value.failure == nil)
        }
      }
      try await group.waitForAll()
    }
  }

  @Test("Objects with one key see each other's changes, whatever their type, and so do their observers")
  func sharing() async throws {
    let theme = StoredValue<Theme>(wrappedValue: .light, key: "theme", storage: try defaults.open())
    let name = StoredValue<String>(wrappedValue: "none", key: "theme", storage: try defaults.open())
    let other = StoredValue<String>(wrappedValue: "none", key: "other", storage: try defaults.open())
    let changes = ChangeCounter { _ = name.wrappedValue }
    let otherChanges = ChangeCounter { _ = other.wrappedValue }
    let stream = name.values

    try theme.set(.dark)
    #expect(changes.count == 1)
    #expect(name.wrappedValue == "dark")
    try name.set("system")
    #expect(theme.wrappedValue == .system)
    try name.set("no theme")
    #expect(theme.failure?.code == .decodingFailed)
    try theme.reset()
    #expect(name.wrappedValue == "none")
    #expect(changes.count == 4)
    #expect(otherChanges.count == 0)
    let seen = await stream.prefix(5).reduce(into: []) { $0.append($1) }
    #expect(seen == ["none", "dark", "system", "no theme", "none"])
  }

  @Test("Releasing an object ends its own streams only")
  func lifetime() async throws {
    let storage = try defaults.open()
    let stream = StoredValue(wrappedValue: 1, key: "number", storage: storage).values
    #expect(await stream.reduce(into: []) { $0.append($1) } == [1])
    for _ in 0..<1000 { _ = StoredValue(wrappedValue: 0, key: "number", storage: storage).wrappedValue }
    @StoredValue(key: "number", storage: storage) var number = 0
    try $number.set(2)
    #expect(number == 2)
  }

  @Test("An operation may be called during another one on the same thread")
  func nested() throws {
    let outer = StoredValue(wrappedValue: 0, key: "outer", storage: try defaults.open())
    let inner = StoredValue(wrappedValue: 0, key: "inner", storage: try defaults.open())
    try outer.update { number in
      try inner.set(1)
      number = inner.wrappedValue + outer.wrappedValue + 1
    }
    #expect(outer.wrappedValue == 2)
  }
}
