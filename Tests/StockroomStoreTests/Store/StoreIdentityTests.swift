import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import Testing

/// An item that gets a different identifier with each decoding.
private struct Todo: Codable, Sendable, Identifiable {
  let id: UUID
  var text: String

  private enum CodingKeys: CodingKey { case text }

  init(text: String) { (id, self.text) = (UUID(), text) }
  init(from decoder: any Decoder) throws {
    self.init(text: try decoder.container(keyedBy: CodingKeys.self).decode(String.self, forKey: .text))
  }
}

/// An item whose identifier is rounded by its codec.
private struct Visit: Codable, Sendable {
  var at: Date
  var key: String { "\(at.timeIntervalSince1970)" }
}

private struct ISODateCodec: Codec {
  func encode(_ value: some Encodable) throws -> Data {
    let encoder = JSONEncoder()
    encoder.dateEncodingStrategy = .iso8601
    return try encoder.encode(value)
  }

  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    return try decoder.decode(type, from: data)
  }
}

/// An item that can be encoded but not decoded.
private struct OneWay: Codable, Sendable, Identifiable {
  var id: String
  init(id: String) { self.id = id }
  init(from decoder: any Decoder) throws { throw CancellationError() }
}

/// Counts the decodings.
private struct CountingCodec: Codec {
  let decoded = Counter()
  func encode(_ value: some Encodable) throws -> Data { try JSONEncoder().encode(value) }
  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    decoded.increment()
    return try JSONDecoder().decode(type, from: data)
  }
}

@MainActor @Suite("Identifiers of items") struct StoreIdentityTests {
  @Test("An item whose identifier does not survive encoding is rejected at the first insert")
  func unstable() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<Todo>(storage: engine)
    for _ in 0..<2 {
      let error = await #expect(throws: StorageError.self) { try await store.insert(Todo(text: "a")) }
      #expect(error?.code == .encodingFailed)
      #expect(error?.message.contains("the identifier of a Todo does not survive encoding") == true)
    }
    await #expect(throws: StorageError.self) { try await store.removeAll().insert(Todo(text: "a")).run() }
    #expect(store.items.isEmpty)
    #expect(try await engine.keyCount() == 0)
  }

  @Test("An identifier that the codec rounds is rejected")
  func rounded() async throws {
    let store = try await Store<Visit>(storage: .memory(), cacheIdentifier: \.key, codec: ISODateCodec())
    let visit = Visit(at: Date(timeIntervalSince1970: 1_000.5))
    let error = await #expect(throws: StorageError.self) { try await store.insert(visit) }
    #expect(error?.message.contains("\"1000.5\" was encoded") == true)
    try await store.insert(Visit(at: Date(timeIntervalSince1970: 1_000)))
  }

  @Test("An item that can be encoded but not decoded is rejected, with the cause")
  func oneWay() async throws {
    let engine = MemoryStorageEngine()
    let store = try await Store<OneWay>(storage: engine)
    let error = await #expect(throws: StorageError.self) { try await store.insert(OneWay(id: "a")) }
    #expect(error?.code == .encodingFailed)
    #expect(error?.underlying is CancellationError)
    #expect(try await engine.keyCount() == 0)
  }

  @Test("Only the first item of a store is decoded to verify its identifier")
  func once() async throws {
    let codec = CountingCodec()
    let store = try await Store<Note>(storage: .memory(), codec: codec)
    try await store.insert(Note.numbered(0..<200))
    try await store.insert(Note(id: "a"))
    try await store.removeAll().insert(Note.numbered(0..<3)).run()
    #expect(codec.decoded.count == 1)
  }

  @Test("Items can be identified by numbers and any other LosslessStringConvertible")
  func lossless() async throws {
    struct Line: Codable, Sendable, Identifiable, Equatable {
      var id: Int
      var text = ""
    }
    struct Letter: Codable, Sendable, Identifiable {
      var text: String
      var id: Substring { text.prefix(1) }
    }
    let engine = MemoryStorageEngine()
    let lines = try await Store<Line>(storage: engine)
    try await lines.insert([Line(id: 3), Line(id: -1), Line(id: 3, text: "new")])
    #expect(lines.items == [Line(id: 3, text: "new"), Line(id: -1)])
    #expect(Set(try await engine.allKeys().map(\.value)) == ["3", "-1"])
    let letters = try await Store<Letter>(storage: .memory())
    try await letters.insert([Letter(text: "a1"), Letter(text: "b"), Letter(text: "a2")])
    #expect(letters.items.map(\.text) == ["a2", "b"])
  }

  @Test("An identifier equal to another's hash replaces it neither in a chain nor in a concurrent call")
  func sharedHash() async throws {
    let long = Note(id: String(repeating: "x", count: 600), text: "long")
    let twin = Note(id: CacheKey(long.id).value, text: "twin")
    func expectRefused(
      _ expected: [Note], _ call: @MainActor (Store<Note>) async throws -> Void,
      sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
      let engine = MemoryStorageEngine()
      let store = try await Store<Note>(storage: engine)
      let error = await #expect(throws: StorageError.self, sourceLocation: sourceLocation) {
        try await call(store)
      }
      #expect(error?.code == .unsupported, sourceLocation: sourceLocation)
      #expect(store.items == expected, sourceLocation: sourceLocation)
      #expect(try await agree(store, engine), sourceLocation: sourceLocation)
    }
    try await expectRefused([]) { try await $0.insert(twin).insert(long).run() }
    try await expectRefused([]) { try await $0.insert(long).insert(twin).run() }
    try await expectRefused([]) { try await $0.insert([twin, long]) }
    try await expectRefused([]) { try await $0.insert(twin).remove(long).run() }
    let busy = Note(id: "keeps the engine busy")
    try await expectRefused([busy, twin]) { store in
      let calls = [busy, twin, long].map { note in Task { try await store.insert(note) } }
      for call in calls { try await call.value }
    }
    try await expectRefused([busy, long]) { store in
      let calls = [
        Task { try await store.insert(busy) }, Task { try await store.modify(long.id) { $0 = long } },
        Task { try await store.insert(twin) },
      ]
      for call in calls { try await call.value }
    }
  }

  @Test("An item is found by its identifier, and not by another identifier with the same key")
  func sharedHashLookup() async throws {
    let long = Note(id: String(repeating: "x", count: 600), text: "long")
    let twin = Note(id: CacheKey(long.id).value, text: "twin")
    for (present, absent) in [(long, twin), (twin, long)] {
      let engine = MemoryStorageEngine()
      let store = try await Store<Note>(storage: engine)
      try await store.insert(present)
      for store in [store, try await Store<Note>(storage: engine)] {
        #expect(store[present.id] == present && store.contains(id: present.id))
        #expect(store[absent.id] == nil && !store.contains(id: absent.id))
        do {
          #expect(try await store.update(absent.id, { $0.text = "changed" }) == nil)
        } catch let error as StorageError {
          #expect(error.code == .unsupported)
        }
        #expect(store.items == [present])
      }
    }
  }

  @Test("An identifier equal to the hash of a removed one is accepted")
  func sharedHashInTurn() async throws {
    let long = Note(id: String(repeating: "x", count: 600), text: "long")
    let twin = Note(id: CacheKey(long.id).value, text: "twin")
    let engine = MemoryStorageEngine()
    let store = try await Store<Note>(storage: engine)
    for (former, next) in [(long, twin), (twin, long)] {
      try await store.removeAll()
      try await store.insert(former)
      try await store.removeAll().insert(next).run()
      #expect(store.items == [next])
      try await store.insert(Note(id: "x")).remove(next).insert(former).run()
      #expect(store.items == [Note(id: "x"), former])
      #expect(try await agree(store, engine))
    }
  }
}
