import Foundation
import StockroomCore
import StockroomStore
import Testing

@Suite struct StoredValueFailureTests {
  private let defaults = TemporaryDefaults()
  private let junk = Data("no JSON at all".utf8)

  @Test("Bytes that cannot be decoded stay stored, the value is the default, and failure is set")
  func undecodable() throws {
    let storage = try defaults.open()
    try defaults.put(junk, forKey: "list")
    @StoredValue(key: "list", storage: storage) var list = ["default"]
    #expect(list == ["default"])
    #expect($list.failure?.code == .decodingFailed)
    #expect($list.failure?.message.contains("list") == true)
    #expect($list.failure?.underlying is DecodingError)
    #expect(throws: StorageError.self) { try $list.get() }
    #expect(try defaults.stored("list") == junk)
  }

  @Test("Operations on bytes that cannot be decoded throw and keep them; set and reset replace them")
  func operationsOnUndecodable() throws {
    let storage = try defaults.open()
    try defaults.put(junk, forKey: "list")
    @StoredValue(key: "list", storage: storage) var list: [String] = []
    let operations: [() throws -> Void] = [
      { try $list.append("a") }, { try $list.replace("a", with: "b") }, { try $list.togglePresence("a") },
      { try $list.set(\.[0], to: "a") }, { try $list.update { $0 = [] } },
    ]
    for operation in operations {
      let error = #expect(throws: StorageError.self, performing: operation)
      #expect(error?.code == .decodingFailed)
      #expect(try defaults.stored("list") == junk)
    }
    try $list.set(["a"])
    #expect(list == ["a"])
    #expect($list.failure == nil)

    try defaults.put(junk, forKey: "list")
    #expect($list.failure != nil)
    try $list.reset()
    #expect($list.failure == nil)
    #expect(try $list.get() == [])
  }

  @Test("A stored value that is not Data is a failure, and is kept")
  func foreignTypes() throws {
    let storage = try defaults.open()
    let values: [Any] = ["text", 5, true, [1, 2], ["a": 1], Date.now, 1.5]
    for (index, value) in values.enumerated() {
      let key = "foreign \(index)"
      storage.set(value, forKey: key)
      @StoredValue(key: key, storage: storage) var number = 0
      #expect(number == 0)
      #expect($number.failure?.code == .decodingFailed)
      #expect($number.failure?.message.contains(key) == true)
      let error = #expect(throws: StorageError.self) { try $number.update { $0 += 1 } }
      #expect(error?.code == .decodingFailed)
      #expect(storage.object(forKey: key) != nil && storage.data(forKey: key) == nil)
      try $number.set(3)
      #expect(number == 3)
    }
  }

  @Test("An entry of zero bytes throws, and is not absent")
  func empty() throws {
    let storage = try defaults.open()
    try defaults.put(Data(), forKey: "number")
    @StoredValue(key: "number", storage: storage) var number = 1
    #expect($number.failure?.code == .decodingFailed)
  }

  @Test("A value that cannot be encoded throws, changes nothing and notifies no observer")
  func unencodable() async throws {
    @StoredValue(key: "number", storage: try defaults.open()) var number = 1.5
    try $number.set(2.5)
    let value = $number
    let changes = ChangeCounter { _ = value.wrappedValue }
    let stream = value.values
    let errors = [
      #expect(throws: StorageError.self) { try $number.set(.nan) },
      #expect(throws: StorageError.self) { try $number.update { $0 = .infinity } },
    ]
    for error in errors {
      #expect(error?.code == .encodingFailed)
      #expect(error?.message.contains("number") == true)
      #expect(error?.underlying is EncodingError)
    }
    #expect(number == 2.5)
    #expect(changes.count == 0)
    try $number.set(3.5)
    #expect(await stream.prefix(2).reduce(into: []) { $0.append($1) } == [2.5, 3.5])
  }

  @Test("A value that decodes differently is rejected")
  func changedByCoding() throws {
    let storage = try defaults.open()
    func refuses<Item: StorableItem & Equatable>(_ item: Item, default other: Item) throws {
      let value = StoredValue(wrappedValue: other, key: "key", storage: storage)
      let error = #expect(throws: StorageError.self) { try value.set(item) }
      #expect(error?.code == .encodingFailed)
      #expect(value.wrappedValue == other)
    }
    let relative = try #require(URL(string: "b", relativeTo: URL(string: "https://example.com/a/")))
    try refuses(Int??.some(nil), default: 1)
    try refuses([Int??.some(nil)], default: [])
    try refuses(relative, default: URL(filePath: "/"))
    try refuses(Optional(relative), default: nil)
    try refuses([relative], default: [])
    try refuses(["key": relative], default: [:])

    let value = StoredValue(wrappedValue: Int??.some(1), key: "key", storage: storage)
    try value.set(.none)
    #expect(try value.get() == .none)
    try value.set(2)
    #expect(try value.get() == 2)
    let url = StoredValue(wrappedValue: relative, key: "url", storage: storage)
    try url.set(relative.absoluteURL)
    #expect(try url.get() == relative.absoluteURL)
  }
}
