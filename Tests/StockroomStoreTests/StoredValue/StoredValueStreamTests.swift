import Foundation
import StockroomCore
import StockroomStore
import Testing

@Suite struct StoredValueStreamTests {
  private let defaults = TemporaryDefaults()

  @Test("A stream yields the current value and then each change once")
  func changes() async throws {
    @StoredValue(key: "number", storage: try defaults.open()) var number = 1
    try $number.set(2)
    let stream = $number.values
    try $number.set(3)
    try $number.set(3)
    try $number.update { $0 += 1 }
    try $number.reset()
    #expect(await stream.prefix(4).reduce(into: []) { $0.append($1) } == [2, 3, 4, 1])
  }

  @Test("A thousand subscribers that subscribe during changes miss none and receive none twice")
  func subscribing() async throws {
    let storage = try defaults.open()
    let value = StoredValue(wrappedValue: 0, key: "number", storage: storage)
    let sibling = StoredValue(wrappedValue: 0, key: "number", storage: storage)
    let last = 200
    try await withThrowingTaskGroup { group in
      group.addTask { for _ in 0..<(last / 2) { try value.update { $0 += 1 } } }
      group.addTask { for _ in 0..<(last / 2) { try sibling.update { $0 += 1 } } }
      for index in 0..<1000 {
        group.addTask {
          var expected: Int?
          for await number in (index % 2 == 0 ? value : sibling).values {
            #expect(number == expected ?? number)
            expected = number + 1
            if number == last { break }
          }
          #expect(expected == last + 1)
        }
      }
      try await group.waitForAll()
    }
  }

  @Test("A subscriber that never reads delays nothing, and a cancelled one is removed")
  func slowAndCancelled() async throws {
    let value = StoredValue(wrappedValue: 0, key: "number", storage: try defaults.open())
    let unread = value.values
    let (started, start) = AsyncStream.makeStream(of: Void.self)
    let reader = Task {
      for await _ in value.values { start.yield() }
      return true
    }
    for await _ in started.prefix(1) {}
    for number in 1...100 { try value.set(number) }
    reader.cancel()
    #expect(await reader.value)
    try value.set(101)
    #expect(await unread.prefix(102).reduce(into: []) { $0.append($1) } == Array(0...101))
  }

  @Test("A stream that buffers only the newest yields the current value")
  func newest() async throws {
    let value = StoredValue(wrappedValue: 0, key: "number", storage: try defaults.open())
    let stream = value.values(bufferingPolicy: .bufferingNewest(1))
    for number in 1...10 { try value.set(number) }
    #expect(await stream.first { _ in true } == 10)
  }

  @Test("A value that becomes unreadable is yielded as the default")
  func undecodable() async throws {
    let storage = try defaults.open()
    let value = StoredValue(wrappedValue: 0, key: "number", storage: storage)
    try value.set(1)
    let stream = value.values
    try defaults.put(Data("text".utf8), forKey: "number")
    #expect(value.wrappedValue == 0)
    try value.set(2)
    #expect(await stream.prefix(3).reduce(into: []) { $0.append($1) } == [1, 0, 2])
  }
}
