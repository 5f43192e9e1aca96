import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

/// The stored format, the chain of types, and `ObjectStorage`, which uses both.
@Suite struct VersionedItemTests {
  private let engine = MemoryStorageEngine()

  private func stored(_ id: String = "a") async throws -> String? {
    try await engine.read(key: key(id)).map { String(decoding: $0, as: UTF8.self) }
  }

  @Test("An entry has its version before the codec's bytes, and the first version has none")
  func form() async throws {
    let note = ThirdNote(id: "a", lines: ["b"])
    try await ObjectStorage<ThirdNote>(storage: engine).store(note, forKey: key("a"))
    let data = try #require(try await engine.read(key: key("a")))
    #expect(data.starts(with: Data([0xFF]) + Data("version 3\n".utf8)))
    #expect(try JSONDecoder().decode(ThirdNote.self, from: data.dropFirst(11)) == note)

    let first = FirstNote(id: "a", text: "b")
    try await ObjectStorage<FirstNote>(storage: engine).store(first, forKey: key("a"))
    let text = try #require(try await engine.read(key: key("a")))
    #expect(try JSONDecoder().decode(FirstNote.self, from: text) == first)
  }

  @Test("The decoders of JSON and property lists reject an entry with a version")
  func oldDecoders() async throws {
    try await ObjectStorage<FourthNote>(storage: engine).store(
      FourthNote(id: "a", lines: []), forKey: key("a"))
    let data = try #require(try await engine.read(key: key("a")))
    struct Anything: Decodable {}
    #expect(throws: (any Error).self) { try JSONDecoder().decode(Anything.self, from: data) }
    #expect(throws: (any Error).self) { try PropertyListDecoder().decode(Anything.self, from: data) }
    #expect(throws: (any Error).self) {
      try JSONSerialization.jsonObject(with: data, options: .fragmentsAllowed)
    }
  }

  @Test("Objects of every version are read through all migration steps")
  func everyVersion() async throws {
    let notes = try await writeEveryVersion(of: 0..<40, to: engine)
    let storage = ObjectStorage<FourthNote>(storage: engine)
    #expect(try await storage.objects(forKeys: notes.map { key($0.id) }) == notes)
    #expect(try await storage.object(forKey: key("note 0")) == notes[0])
    #expect(Set(try await versions(in: engine).values) == ["1", "2", "3", "4"])
  }

  @Test("Optionals, arrays and dictionaries of a versioned type have its versions")
  func containers() async throws {
    try await ObjectStorage<[FirstNote]>(storage: engine).store(
      [FirstNote(id: "a", text: "b")], forKey: key("a"))
    #expect(
      try await ObjectStorage<[FourthNote]>(storage: engine).object(forKey: key("a"))
        == [FourthNote(id: "a", lines: ["b"])])
    let second: [String: SecondNote?] = ["x": SecondNote(id: "a", text: "b"), "y": nil]
    try await ObjectStorage<[String: SecondNote?]>(storage: engine).store(second, forKey: key("a"))
    #expect(try await stored()?.dropFirst().hasPrefix("version 2\n") == true)
    #expect(
      try await ObjectStorage<[String: FourthNote?]>(storage: engine).object(forKey: key("a"))
        == ["x": FourthNote(id: "a", lines: ["b"]), "y": nil])
    for note in [nil, ThirdNote(id: "a", lines: [])] {
      try await ObjectStorage<ThirdNote?>(storage: engine).store(note, forKey: key("a"))
      #expect(
        try await ObjectStorage<FourthNote?>(storage: engine).object(forKey: key("a"))
          == .some(note.map(FourthNote.init)))
    }
    let isNewer = newerVersion(
      await #expect(throws: StorageError.self) {
        try await ObjectStorage<[String: SecondNote]?>(storage: engine).object(forKey: key("a"))
      })
    #expect(isNewer == NewerVersionError(version: 3, newestKnown: 2))
  }

  @Test("A migration step that throws leaves the entry unchanged, and its error states the reason")
  func failingStep() async throws {
    try await ObjectStorage<FirstNote>(storage: engine)
      .store(FirstNote(id: "a", text: "refused"), forKey: key("a"))
    let before = try await stored()
    let storage = ObjectStorage<FourthNote>(storage: engine)
    let error = await #expect(throws: StorageError.self) { try await storage.object(forKey: key("a")) }
    #expect(error?.code == .decodingFailed && error?.underlying is SecondNote.Refusal)
    let result = try await storage.rewriteOldVersions(forKeys: engine.allKeys())
    #expect(result.rewritten == 0 && result.unreadable.map(\.key.value) == ["a"])
    #expect(try await stored() == before)
  }

  @Test(
    "A newer version is reported, and an older program does not overwrite it",
    arguments: [
      "version 5\n", "version 999999999999999999\n", "version 4 x\n", "version \n", "version 4",
      "version 04\n",
    ])
  func future(form: String) async throws {
    let future = Data([0xFF]) + Data("\(form){}".utf8)
    try await engine.write(future, key: key("a"))
    func isLeftAlone<Object>(_ storage: ObjectStorage<Object>, from object: Object, _ version: Int)
      async throws
    {
      let read = await #expect(throws: StorageError.self) { try await storage.object(forKey: key("a")) }
      #expect(newerVersion(read)?.newestKnown == version)
      let write = await #expect(throws: StorageError.self) {
        try await storage.store([(key("b"), object), (key("a"), object)])
      }
      #expect(newerVersion(write)?.newestKnown == version)
      #expect(try await engine.read(key: key("b")) == nil)
      #expect(try await engine.read(key: key("a")) == future)
    }
    try await isLeftAlone(ObjectStorage(storage: engine), from: FirstNote(id: "a", text: ""), 1)
    try await isLeftAlone(ObjectStorage(storage: engine), from: SecondNote(id: "a", text: ""), 2)
    let storage = ObjectStorage<FourthNote>(storage: engine)
    try await isLeftAlone(storage, from: FourthNote(id: "a", lines: []), 4)
    let result = try await storage.rewriteOldVersions(forKeys: engine.allKeys())
    #expect(result.rewritten == 0 && result.unreadable.map { newerVersion($0.error)?.newestKnown } == [4])
    #expect(try await engine.read(key: key("a")) == future)
    try await storage.removeObject(forKey: key("a"))
    try await storage.store(FourthNote(id: "a", lines: []), forKey: key("a"))
  }

  @Test(
    "An older program does not overwrite a newer version that it has not read, with or without transactions")
  func unseen() async throws {
    for engine in [engine as any StorageEngine, MinimalEngine()] {
      try await engine.write(Data([0xFF]) + Data("version 4\n{}".utf8), key: key("a"))
      let storage = ObjectStorage<ThirdNote>(storage: engine)
      let error = await #expect(throws: StorageError.self) {
        try await storage.store(ThirdNote(id: "a", lines: []), forKey: key("a"))
      }
      #expect(newerVersion(error) == NewerVersionError(version: 4, newestKnown: 3))
      #expect(try await engine.read(key: key("a"))?.count == 13)
    }
  }

  @Test("Any output of a codec is read as it was written, even if it resembles a version")
  func anyBytes() async throws {
    struct Verbatim: Codec {
      func encode(_ value: some Encodable) throws -> Data {
        guard let data = value as? Data else { throw CocoaError(.coderInvalidValue) }
        return data
      }
      func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
        guard data.startIndex == 0, let value = data as? Value else { throw CocoaError(.coderReadCorrupt) }
        return value
      }
    }
    let storage = ObjectStorage<Data>(storage: engine, codec: Verbatim())
    for text in ["", "x", "version 1\n", "version 7\nx", "version "] {
      for data in [Data(text.utf8), Data([0xFF]) + Data(text.utf8)] {
        try await storage.store(data, forKey: key("a"))
        #expect(try await storage.object(forKey: key("a")) == data)
      }
    }
  }

  @Test("Rewriting stores each old object once, in the newest version, and keeps its createdAt")
  func rewriting() async throws {
    let notes = try await writeEveryVersion(of: 0..<2_500, to: engine)
    let created = try await engine.createdAt(key: key("note 0"))
    let failing = FailingStorageEngine(engine)
    let storage = ObjectStorage<FourthNote>(storage: failing)
    let progress = Shared<[Int]>([])
    let result = try await storage.rewriteOldVersions(forKeys: engine.allKeys()) { done, total in
      #expect(total == 2_500)
      progress.withLock { $0.append(done) }
    }
    #expect(result.rewritten == 1_875 && result.unreadable.isEmpty)
    #expect(progress.withLock { $0 } == [1_000, 2_000, 2_500])
    #expect(failing.calls.count { $0.isWrite } == 3)
    #expect(Set(try await versions(in: engine).values) == ["4"])
    #expect(try await storage.objects(forKeys: notes.map { key($0.id) }) == notes)
    #expect(try await engine.createdAt(key: key("note 0")) == created)
    #expect(try await storage.rewriteOldVersions(forKeys: engine.allKeys()).rewritten == 0)
  }

  @Test("Rewriting leaves objects under other keys unchanged, even if they resemble old ones")
  func otherTypes() async throws {
    let other = Data(#"{"id":"a","text":"b","secret":1}"#.utf8)
    try await engine.write(other, key: key("other"))
    try await ObjectStorage<FirstNote>(storage: engine).store(FirstNote(id: "a", text: "b"), forKey: key("a"))
    let result = try await ObjectStorage<FourthNote>(storage: engine).rewriteOldVersions(forKeys: [key("a")])
    #expect(result.rewritten == 1)
    #expect(try await engine.read(key: key("other")) == other)
  }

  @Test("Rewriting requires transactions")
  func needsTransactions() async throws {
    let error = await #expect(throws: StorageError.self) {
      try await ObjectStorage<FourthNote>(storage: MinimalEngine()).rewriteOldVersions(forKeys: [])
    }
    #expect(error?.code == .unsupported)
  }
}

/// Chains that do not reach version 1, or are declared incorrectly.
@Suite struct VersionChainTests {
  struct Latest: VersionedItem, Equatable {
    static let version = 7
    var number = 0
    init() {}
    init(migrating previous: Middle) { number = previous.number }
  }
  struct Middle: VersionedItem, Equatable {
    static let version = 5
    var number = 0
  }
  struct Beginning: VersionedItem, Equatable { var number = 0 }
  struct Repeated: VersionedItem {
    static let version = 5
    init() {}
    init(migrating previous: Middle) {}
  }
  struct Zero: VersionedItem { static let version = 0 }

  private let engine = MemoryStorageEngine()

  @Test("Versions are counted from the oldest type, unless a type declares its own")
  func numbers() {
    #expect(
      SecondNote.version == 2 && FourthNote.version == 4 && Beginning.version == 1 && Latest.version == 7)
    #expect([FourthNote]?.version == 4 && [String: Middle]?.version == 5 && [Beginning?].version == 1)
  }

  @Test(
    "A chain without its oldest types reads the remaining versions, and nothing older",
    arguments: [1, 3, 5, 6, 7, 8])
  func shortened(version: Int) async throws {
    let json = Data(#"{"number":9}"#.utf8)
    let header = version == 1 ? Data() : Data([0xFF]) + Data("version \(version)\n".utf8)
    try await engine.write(header + json, key: key("a"))
    let storage = ObjectStorage<Latest>(storage: engine)
    if [5, 7].contains(version) {
      #expect(try await storage.object(forKey: key("a"))?.number == 9)
      #expect(try await ObjectStorage<Latest?>(storage: engine).object(forKey: key("a"))??.number == 9)
    } else {
      let error = await #expect(throws: StorageError.self) { try await storage.object(forKey: key("a")) }
      #expect(error?.code == (version > 7 ? .unsupported : .decodingFailed))
      #expect(try await storage.rewriteOldVersions(forKeys: engine.allKeys()).unreadable.count == 1)
    }
  }

  @Test("A type whose first version is versioned is stored like one without versions")
  func beginning() async throws {
    try await ObjectStorage<Beginning>(storage: engine).store(Beginning(number: 3), forKey: key("a"))
    #expect(try await engine.read(key: key("a")) == Data(#"{"number":3}"#.utf8))
  }

  @Test("Versions that are out of order store nothing")
  func wrong() async throws {
    let repeated = await #expect(throws: StorageError.self) {
      try await ObjectStorage<Repeated>(storage: engine).store(Repeated(), forKey: key("a"))
    }
    let zero = await #expect(throws: StorageError.self) {
      try await ObjectStorage<Zero>(storage: engine).store(Zero(), forKey: key("a"))
    }
    #expect(repeated?.code == .unsupported && zero?.code == .unsupported)
    #expect(try await engine.keyCount() == 0)
  }
}
