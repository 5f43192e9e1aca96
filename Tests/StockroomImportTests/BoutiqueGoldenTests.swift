import Foundation
import StockroomCore
import StockroomImport
import StockroomMemory
import StockroomSQLite
import StockroomStore
import TestFixtures
import Testing

/// Stores that Boutique 2 itself has written, with both of Bodega's engines: 17 items were inserted, three of them
/// removed and three changed, alone and together. `items.json` has what Boutique then loaded from its database.
///
/// Boutique was compiled for Linux with OpenCombine in place of Combine, and a small module in place of SQLite.swift
/// that executes the same statements.
@MainActor
struct BoutiqueGoldenTests {
  struct Errand: Codable, Hashable, Sendable, Identifiable {
    var id: String
    var title: String
    var priority: Int
    var isDone: Bool
    var tags: [String]
    var due: Date?
    var place: Place?

    struct Place: Codable, Hashable, Sendable {
      var latitude: Double
      var longitude: Double
    }
  }

  let place: TemporaryDirectory
  let expected: [Errand]

  init() throws {
    let golden = try #require(Bundle.module.resourceURL).appending(path: "Golden/boutique")
    place = try TemporaryDirectory(isCreated: false)
    try FileManager.default.copyItem(at: golden, to: place.url)
    expected = try JSONDecoder().decode([Errand].self, from: Data(contentsOf: place.appending("items.json")))
  }

  @Test(
    "What Boutique itself has stored opens after an import, item by item equal",
    arguments: ["data.sqlite3", "files"])
  func opens(_ name: String) async throws {
    let url = place.appending(name)
    let source = try await ImportSourceKind.detect(at: url).source(at: url)
    let engine = try SQLiteStorageEngine(directory: FileManager.Directory(url: place.beside("new")))
    let report = try await source.import(into: engine)
    #expect(report.imported == expected.count)
    #expect(report.unresolvedHashes == 0)

    let store = try await Store<Errand>(storage: engine)
    #expect(store.unreadableEntries.isEmpty)
    #expect(store.items.count == expected.count)
    #expect(Set(store.items) == Set(expected))

    // The items are under the store's own keys.
    try await store.remove(expected)
    #expect(try await engine.keyCount() == 0)
    try await engine.close()
  }
}
