import Dispatch
import Foundation
import StockroomCore
import StockroomTestSupport
import StockroomStore
import TestFixtures
import Testing

@Suite("ObjectStorage: failures")
struct ObjectStorageFailureTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  private func storage(_ engine: AnyEngine) async throws -> ObjectStorage<Letter> {
    ObjectStorage(storage: try await engine.open(directory))
  }

  @Test(
    "Every read of an entry that cannot be decoded throws an error with its key, and keeps it",
    arguments: AnyEngine.all)
  func undecodable(engine: AnyEngine) async throws {
    let base = try await engine.open(directory)
    let notes = ObjectStorage<Letter>(storage: base)
    try await notes.store(many(200))
    let junk = ["{", "", "null", "\u{0}", #"{"text":"a"}"#, #"{"text":1,"likes":1}"#, "[[[[[[[["]
    for (text, culprit) in zip(junk, [0, 199, 100, 17, 16, 64, 63]) {
      let culprit = key("\(culprit)")
      try await base.write(Data(text.utf8), key: culprit)
      for (name, read) in reads(of: many(200).map(\.key), culprit) {
        await expectError(.decodingFailed, naming: culprit, name) { try await read(notes) }
      }
      #expect(try await base.read(key: culprit) == Data(text.utf8))
      try await notes.store(.first, forKey: culprit)
    }
    #expect(try await notes.allObjects().count == 200)
  }

  @Test("The first object that cannot be decoded is reported", arguments: AnyEngine.all)
  func firstUndecodable(engine: AnyEngine) async throws {
    let base = try await engine.open(directory)
    let notes = ObjectStorage<Letter>(storage: base)
    try await notes.store(many(2_000))
    for culprit in ["1999", "1203", "801"] { try await base.write(Data(), key: key(culprit)) }
    let keys = many(2_000).map(\.key)
    await expectError(.decodingFailed, naming: key("801")) { _ = try await notes.objects(forKeys: keys) }
    await expectError(.decodingFailed, naming: key("1999")) {
      _ = try await notes.objectsAndKeys(keys: keys.reversed())
    }
  }

  @Test(
    "An object that cannot be encoded throws an error with its key, and nothing is stored",
    arguments: AnyEngine.all)
  func unencodable(engine: AnyEngine) async throws {
    let numbers = ObjectStorage<Double>(storage: try await engine.open(directory))
    try await numbers.store(1, forKey: key("a"))
    await expectError(.encodingFailed, naming: key("a")) {
      try await numbers.store(.infinity, forKey: key("a"))
    }
    for count in [3, 1_000] {
      var batch = (0..<count).map { (key: key("\($0)"), object: Double($0)) }
      batch[count - 1].object = .nan
      batch[1].object = -.infinity
      await expectError(.encodingFailed, naming: key("1")) { [batch] in try await numbers.store(batch) }
    }
    #expect(try await numbers.allObjects() == [1])
  }

  @Test("An invalid key throws, and nothing is stored", arguments: AnyEngine.all)
  func invalidKeys(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    for bad in [key(""), key(String(repeating: "k", count: 512))] {
      await expectError(.invalidKey) { try await notes.store(.first, forKey: bad) }
      await expectError(.invalidKey) { try await notes.store([(key("a"), .first), (bad, .first)]) }
      await expectError(.invalidKey) { _ = try await notes.object(forKey: bad) }
      await expectError(.invalidKey) { _ = try await notes.objects(forKeys: [key("a"), bad]) }
      await expectError(.invalidKey) { _ = try await notes.objectsAndKeys(keys: [bad]) }
      await expectError(.invalidKey) { try await notes.removeObject(forKey: bad) }
      await expectError(.invalidKey) { try await notes.removeObject(forKeys: [bad]) }
      await expectError(.invalidKey) { _ = try await notes.createdAt(forKey: bad) }
      await expectError(.invalidKey) { _ = try await notes.updatedAt(forKey: bad) }
    }
    #expect(try await notes.keyCount() == 0)
  }

  @Test("Every method rethrows the error of the engine")
  func engineFails() async throws {
    let engine = FailingStorageEngine(try await AnyEngine.all[0].open(directory))
    let notes = ObjectStorage<Letter>(storage: engine)
    try await notes.store(many(100))
    engine.failEveryCall(with: StorageError(.diskFull, "Full."))

    let (a, keys) = (key("1"), many(100).map(\.key))
    await expectError(.diskFull) { try await notes.store(.first, forKey: a) }
    await expectError(.diskFull) { try await notes.store(many(100)) }
    for (name, read) in reads(of: keys, a) {
      await expectError(.diskFull, name) { try await read(notes) }
    }
    await expectError(.diskFull) { try await notes.removeObject(forKey: a) }
    await expectError(.diskFull) { try await notes.removeObject(forKeys: keys) }
    await expectError(.diskFull) { try await notes.removeAllObjects() }
    await expectError(.diskFull) { _ = try await notes.keyCount() }
    await expectError(.diskFull) { _ = try await notes.allKeys() }
    await expectError(.diskFull) { _ = try await notes.createdAt(forKey: a) }
    await expectError(.diskFull) { _ = try await notes.updatedAt(forKey: a) }

    engine.clearFaults()
    #expect(try await Set(notes.allObjects()) == Set(many(100).map(\.object)))
  }

  @Test("A closed engine throws, even for an empty request", arguments: AnyEngine.all)
  func closed(engine: AnyEngine) async throws {
    let base = try await engine.open(directory)
    let notes = ObjectStorage<Letter>(storage: base)
    try await base.close()
    await expectError(.closed) { try await notes.store(.first, forKey: key("a")) }
    await expectError(.closed) { _ = try await notes.objects(forKeys: []) }
    await expectError(.closed) { _ = try await notes.allObjects() }
  }

  @Test("A cancelled call stores nothing and throws, or stores everything", arguments: AnyEngine.all)
  func cancellation(engine: AnyEngine) async throws {
    let notes = try await storage(engine)
    for count in [1, 10, 1_000] {
      let storing = Task {
        withUnsafeCurrentTask { $0?.cancel() }
        try await notes.store(many(count))
      }
      let result = await storing.result
      let stored = try await notes.keyCount()
      switch result {
      case .success: #expect(stored == count)
      case .failure(let error):
        #expect(error is CancellationError)
        #expect(stored == 0)
      }
      try await notes.removeAllObjects()
    }
  }

  @Test("The codec is never called on the main actor")
  @MainActor func offTheMainActor() async throws {
    DispatchQueue.main.setSpecific(key: WorkerCodec.mainQueue, value: true)
    try #require(WorkerCodec.isOnMainQueue)
    let notes = ObjectStorage<Letter>(
      storage: try await AnyEngine.all[0].open(directory), codec: WorkerCodec())
    for count in [1, 2, 200] {
      try await notes.store(many(count))
      try await notes.store(.first, forKey: key("0"))
      for (_, read) in reads(of: many(count).map(\.key), key("0")) { try await read(notes) }
    }
  }
}

/// Calls of every method that reads objects, with their names.
private func reads(
  of keys: [CacheKey], _ one: CacheKey
) -> [(name: String, read: @Sendable (ObjectStorage<Letter>) async throws -> Void)] {
  [
    ("object(forKey:)", { _ = try await $0.object(forKey: one) }),
    ("objects(forKeys:) of one", { _ = try await $0.objects(forKeys: [one]) }),
    ("objects(forKeys:)", { _ = try await $0.objects(forKeys: keys) }),
    ("objectsAndKeys(keys:)", { _ = try await $0.objectsAndKeys(keys: keys) }),
    ("allObjects()", { _ = try await $0.allObjects() }),
    ("allObjectsAndKeys()", { _ = try await $0.allObjectsAndKeys() }),
  ]
}

private func expectError(
  _ code: StorageError.Code, naming key: CacheKey? = nil, _ name: String = "",
  sourceLocation: SourceLocation = #_sourceLocation, _ body: () async throws -> Void
) async {
  let comment = Comment(rawValue: name)
  let error = await #expect(throws: StorageError.self, comment, sourceLocation: sourceLocation) {
    try await body()
  }
  #expect(error?.code == code, comment, sourceLocation: sourceLocation)
  guard let key else { return }
  #expect(error?.message.contains("\(key)") == true, comment, sourceLocation: sourceLocation)
  #expect(error?.underlying != nil, comment, sourceLocation: sourceLocation)
}

/// JSON that must not run on the main queue, which may use another thread than the main thread.
private struct WorkerCodec: Codec {
  static let mainQueue = DispatchSpecificKey<Bool>()
  static var isOnMainQueue: Bool { DispatchQueue.getSpecific(key: mainQueue) == true }

  func encode(_ value: some Encodable) throws -> Data {
    #expect(!Self.isOnMainQueue)
    return try JSONCodec().encode(value)
  }

  func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
    #expect(!Self.isOnMainQueue)
    return try JSONCodec().decode(type, from: data)
  }
}
