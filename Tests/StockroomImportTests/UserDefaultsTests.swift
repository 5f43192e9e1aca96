import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import StockroomStore
import TestFixtures
import Testing

struct UserDefaultsTests {
  let place: TemporaryDirectory
  private var file: URL { place.appending("com.example.app.plist") }

  init() throws { place = try TemporaryDirectory() }

  private func write(
    _ values: [String: Any], _ format: PropertyListSerialization.PropertyListFormat = .binary
  ) throws {
    try PropertyListSerialization.data(fromPropertyList: values, format: format, options: 0).write(to: file)
  }

  private struct Boxed<Value: Codable>: Codable { var value: Value }

  private static func boxed(_ value: some Codable) throws -> Data {
    try JSONEncoder().encode(Boxed(value: value))
  }

  @Test("Values of Boutique's are read from a property list of either format", arguments: [true, false])
  func formats(isBinary: Bool) async throws {
    let missing: String? = nil
    try write(
      [
        "flag": Self.boxed(true), "note": Self.boxed(Note.all[2]), "missing": Self.boxed(missing),
        "AppleLanguages": ["en"], "count": 7, "other data": Data([1, 2]),
        "looks boxed": Data(#"{"value":1,"a":2}"#.utf8),
      ], isBinary ? .binary : .xml)
    let engine = RecordingEngine()
    let source = UserDefaultsSource(at: file)
    let report = try await source.import(into: engine)
    #expect(report.imported == 3)
    #expect(report.omissions.count == 4)
    #expect(try await engine.read(key: CacheKey(verbatim: "flag")) == Data("true".utf8))
    #expect(try await engine.read(key: CacheKey(verbatim: "missing")) == Data("null".utf8))
    #expect(try source.value(Note.self, forKey: "note") == Note.all[2])
    #expect(try source.value(String?.self, forKey: "missing") == .some(nil))
    #expect(try source.value(Bool.self, forKey: "absent") == nil)
    #expect(throws: StorageError.self) { try source.value(Bool.self, forKey: "note") }
    #expect(throws: StorageError.self) { try source.value(Int.self, forKey: "count") }

    let value = AsyncStoredValue<Note?>(wrappedValue: nil, storage: engine, key: "note")
    try await value.valueHasLoaded()
    #expect(value.wrappedValue == Note.all[2])
  }

  @Test("The JSON of a value is taken from its box byte for byte")
  func exactBytes() async throws {
    let json = #"{"b":0.10000000000000001,"a":"\u00e9\/"}"#
    try write(["value": Data(#"{"value":\#(json)}"#.utf8)])
    let engine = MemoryStorageEngine()
    try await UserDefaultsSource(at: file).import(into: engine)
    #expect(try await engine.read(key: CacheKey(verbatim: "value")) == Data(json.utf8))
  }

  @Test("Keys that are named are imported alone, and must have a value of Boutique's")
  func namedKeys() async throws {
    try write(["flag": Self.boxed(true), "other": Self.boxed(1), "count": 7])
    let engine = MemoryStorageEngine()
    try await UserDefaultsSource(at: file, keys: ["flag"]).import(into: engine)
    #expect(try await engine.allKeys() == [CacheKey(verbatim: "flag")])
    try await expectRefusal(
      of: UserDefaultsSource(at: file, keys: ["flag", "count"]), .decodingFailed, "count")
    try await expectRefusal(
      of: UserDefaultsSource(at: file, keys: ["flag", "gone"]), .decodingFailed, "gone")
  }

  @Test("Equal values, which a binary list has once, are all imported")
  func equalValues() async throws {
    let boxed = try Self.boxed(String(repeating: "long ", count: 2_000))
    try write(Dictionary(uniqueKeysWithValues: (0..<500).map { ("key \($0)", boxed) }))
    let engine = MemoryStorageEngine()
    #expect(try await UserDefaultsSource(at: file).import(into: engine).imported == 500)
  }

  @Test(
    "What is no property list of user defaults is refused with its path",
    arguments: ["", "bplist00", "<?xml version", "{"])
  func noPropertyList(_ content: String) async throws {
    try Data(content.utf8).write(to: file)
    try await expectRefusal(of: UserDefaultsSource(at: file), .corrupted, "com.example.app.plist")
    try PropertyListSerialization.data(fromPropertyList: [1, 2], format: .binary, options: 0).write(to: file)
    try await expectRefusal(of: UserDefaultsSource(at: file), .corrupted, "com.example.app.plist")
  }

  @Test(
    "A stored value reads with Boutique's codec what Boutique left in user defaults, and stores the same bytes"
  )
  func storedValue() throws {
    let defaults = try #require(UserDefaults(suiteName: "stockroom-import-\(UUID().uuidString)"))
    let bytes = try Self.boxed(["a", "b"])
    defaults.register(defaults: ["names": bytes])
    let value = StoredValue<[String]>(
      wrappedValue: [], key: "names", storage: defaults, codec: .boutiqueValue)
    #expect(value.wrappedValue == ["a", "b"])
    #expect(value.failure == nil)
    let codec = BoutiqueValueCodec()
    #expect(try codec.encode(["a", "b"]) == bytes)
    let plain = StoredValue<[String]>(wrappedValue: [], key: "names", storage: defaults)
    #expect(plain.failure?.code == .decodingFailed)
  }

  @Test("Values are read from user defaults that are open")
  func openDefaults() async throws {
    let defaults = try #require(UserDefaults(suiteName: "stockroom-import-\(UUID().uuidString)"))
    // Registered values are visible in all defaults of the process, including those of other tests.
    let (flag, count) = ("flag \(UUID().uuidString)", "count \(UUID().uuidString)")
    defaults.register(defaults: [flag: try Self.boxed(true), count: 7])
    let engine = MemoryStorageEngine()
    try await UserDefaultsSource(reading: defaults, keys: [flag, "absent"]).import(into: engine)
    #expect(try await engine.readAllData() == [Data("true".utf8)])
    #expect(throws: StorageError.self) { try UserDefaultsSource(reading: defaults, keys: [count]) }
  }
}
