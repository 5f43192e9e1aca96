import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import StockroomSQLite
import TestFixtures
import Testing

struct DetectionTests {
  let place: TemporaryDirectory

  init() throws { place = try TemporaryDirectory() }

  @Test(
    "Every kind is recognized by what is there, and its source imports it",
    arguments: ImportSourceKind.allCases)
  func recognized(_ kind: ImportSourceKind) async throws {
    var url = place.url
    switch kind {
    case .bodegaSQLite:
      let database = try LegacyDatabase(.bodega, in: url)
      try database.insert("a", Data("1".utf8))
      database.close()
      #expect(try await ImportSourceKind.detect(at: database.url) == kind)
    case .bodegaDisk:
      try Data("1".utf8).write(to: url.appending(path: CacheKey("a").value))
      try Data().write(to: url.appending(path: ".DS_Store"))
    case .persistentCache:
      let database = try LegacyDatabase(.persistentCache, in: url)
      try database.execute("INSERT INTO cache_storage VALUES ('a', x'31', 1)")
      database.close()
      #expect(try await ImportSourceKind.detect(at: database.url) == kind)
    case .userDefaults:
      url = place.appending("a.plist")
      try PropertyListSerialization.data(
        fromPropertyList: ["a": Data(#"{"value":1}"#.utf8)], format: .xml, options: 0
      ).write(to: url)
    }
    let before = try DirectorySnapshot(place.url)
    let found = try await ImportSourceKind.detect(at: url)
    #expect(found == kind)
    #expect(ImportSourceKind(rawValue: kind.rawValue) == kind)
    #expect(try await found.source(at: url).import(into: MemoryStorageEngine()).imported == 1)
    #expect(try DirectorySnapshot(place.url) == before)
  }

  @Test("Anything else is refused with its path")
  func refused() async throws {
    func expectUnknown(_ url: URL, _ word: String) async {
      let error = await #expect(throws: StorageError.self) { try await ImportSourceKind.detect(at: url) }
      #expect(error?.code == .unsupported)
      #expect(error?.description.contains(word) == true, "\(error.map(String.init(describing:)) ?? "")")
    }
    await expectUnknown(place.url, "empty")
    try Data("text".utf8).write(to: place.appending("text"))
    await expectUnknown(place.url, "hashes")
    await expectUnknown(place.appending("text"), "neither")
    let engine = try SQLiteStorageEngine(directory: FileManager.Directory(url: place.beside("own")))
    try await engine.write(Data(), key: CacheKey("a"))
    try await engine.close()
    await expectUnknown(place.beside("own"), "stockroom copy")
  }
}
