import Foundation
import StockroomCore
import TestFixtures
import StockroomFileSystem
import Testing

@Suite("File names")
struct FileNameTests {
  static let hostileKeys: [CacheKey] =
    [
      "../../x", "/etc/passwd", ".", "..", "\0", "a\0b", "%2F", "%2f", "/", "CON", "con", "con.txt", "com1",
      "A", "a",
      "\u{e9}", "e\u{301}", "x.", "x ", " x", ".hidden", "-rf", "~", "+a", "x.entry", "x.more", ".stockroom",
      "a:b",
      "a\\b", "*?<>|\"", "\n", "ß", "ſ", "K",
    ]
    + [
      String(repeating: "🗄", count: 127) + "abc", String(repeating: "a", count: 511),
      String(repeating: "a", count: 240), String(repeating: "a", count: 241),
      String(repeating: "A", count: 511),
      String(repeating: "a", count: 240) + ".b", String(repeating: "a", count: 240) + "con",
      String(repeating: "\u{e9}", count: 255), String(repeating: ".", count: 300),
    ].map { CacheKey(verbatim: $0) }

  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test("Hostile keys are distinct, stay inside the directory, and are preserved")
  func hostileKeys() async throws {
    let engine = try place.open()
    try await engine.write(Self.hostileKeys.map { ($0, data($0.value)) })
    #expect(try await Set(engine.allKeys()) == Set(Self.hostileKeys))
    #expect(try await engine.keyCount() == Self.hostileKeys.count)
    for key in Self.hostileKeys { #expect(try await engine.read(key: key) == data(key.value)) }
    #expect(try await engine.scan(.all, limit: nil).map(\.key) == Self.hostileKeys.sorted())
    #expect(try await engine.readAllEntries().map(\.key) == Self.hostileKeys)

    let around = try FileManager.default.contentsOfDirectory(atPath: place.url.path)
    #expect(around.allSatisfy { $0 == ".stockroom" || $0.hasSuffix(".entry") || $0.hasSuffix(".more") })
    try await engine.remove(keys: Self.hostileKeys)
    #expect(try place.visibleFiles() == [])
  }

  @Test("Names are short, and use only characters that no file system folds or refuses")
  func portableNames() async throws {
    let engine = try place.open(.process)
    for key in Self.hostileKeys { try await engine.write(data("1"), key: key) }
    let allowed = Set("abcdefghijklmnopqrstuvwxyz0123456789-_.,=@+%")
    let devices = ["con", "prn", "aux", "nul", "com1"]
    for path in try place.visibleFiles() {
      for component in path.split(separator: "/", omittingEmptySubsequences: false) {
        #expect(component.utf8.count <= 255)
        #expect(component.allSatisfy(allowed.contains), "\(component)")
        #expect(!component.hasPrefix(".") && !component.hasPrefix("-") && !component.hasSuffix("."))
        #expect(!devices.contains(String(component.prefix { $0 != "." })))
      }
    }
    for key in Self.hostileKeys { try await engine.remove(key: key) }
    #expect(try place.visibleFiles() == [])
  }

  @Test("Names are readable")
  func readableNames() async throws {
    let engine = try place.open(.process)
    let names: [(CacheKey, String)] = [
      ("user-42", "user-42.entry"), ("Paris", "+paris.entry"), ("a/b", "a%2fb.entry"), (".x", "%2ex.entry"),
      ("me@example.com", "me@example.com.entry"), ("con", "%63on.entry"),
    ]
    for (key, name) in names {
      try await engine.write(data("1"), key: key)
      #expect(try place.contents(name) == data("1"))
    }
  }
}
