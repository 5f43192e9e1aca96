// The Swift code of README.md, which ReadmeTests compares with the page. What the page leaves to the reader's
// imagination, MyEngine, is here an engine that exists.

import BenchmarkKit
import ConformanceKit
import Foundation
import Stockroom
import StockroomCore
import StockroomLMDB
import StockroomMemory
import StockroomSQLite
import Testing

private func MyEngine(directory: URL) throws -> SQLiteStorageEngine {
  try SQLiteStorageEngine(directory: FileManager.Directory(url: directory))
}

struct Song: Codable, Sendable, Identifiable {
  var id: String
  var title: String
}

func keepSongs() async throws {
  let songs = try await Store<Song>(storage: .sqlite(directory: .documents(appendingPath: "Songs")))

  try await songs.insert(Song(id: "1", title: "Clair de lune"))
  try await songs.removeAll().insert([Song(id: "2", title: "La mer"), Song(id: "3", title: "Jeux")]).run()
  print(await songs.items.map(\.title))  // an array: to read it costs nothing
}

func keepNotes() async throws {
  let notes = try SQLiteStorageEngine(directory: .defaultStorageDirectory(appendingPath: "Notes"))

  let milk = CacheKey(verbatim: "shopping/milk")
  try await notes.write(Data("2 litres".utf8), key: milk)
  let text = try await notes.read(key: milk)  // nil only if there is no such entry; what fails throws

  // Many at a time: one batch, which happens as a whole or not at all.
  try await notes.apply([
    .remove(key: milk),
    .write(Data("sourdough".utf8), key: CacheKey(verbatim: "shopping/bread")),
  ])

  // In byte order of keys, a page at a time.
  let page = try await notes.scan(.prefix("shopping/"), limit: 20)
  print(text as Any, page.map(\.key))
  try await notes.close()
}

func count(in engine: some StorageEngine) async throws -> Int { try await engine.keyCount() }

func countLetters() async throws -> Int {
  try await count(in: .lmdb(directory: .caches(appendingPath: "Letters")))
}

// swift-format-ignore
@Test(arguments: ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.checks)
func conforms(_ check: ConformanceCheck) async throws { try await check.run() }

func race() async throws {
  let report = try await BenchmarkRunner(configuration: BenchmarkConfiguration()).run([
    BenchmarkSubject("mine") { try MyEngine(directory: $0) },
    BenchmarkSubject("SQLite") { try SQLiteStorageEngine(directory: .init(url: $0)) },
  ])
  print(report.text)
}
