// The Swift code of README.md, which ReadmeTests compares with the page.

import ConformanceKit
import Foundation
import Stockroom
import Testing

struct Song: Codable, Sendable, Identifiable {
  var id: String
  var title: String
}

func keepSongs() async throws {
  let songs = try await Store<Song>(storage: .sqlite(directory: .documents(appendingPath: "Songs")))

  try await songs.insert(Song(id: "1", title: "Clair de lune"))
  try await songs.removeAll().insert([Song(id: "2", title: "La mer"), Song(id: "3", title: "Jeux")]).run()
  print(await songs.items.map(\.title))  // an array in memory
}

func keepNotes() async throws {
  let notes = try SQLiteStorageEngine(directory: .defaultStorageDirectory(appendingPath: "Notes"))
  let milk = CacheKey(verbatim: "shopping/milk")
  try await notes.write(Data("2 liters".utf8), key: milk)
  let text = try await notes.read(key: milk)  // nil only if there is no entry; a failure throws
  try await notes.apply([  // one batch, all or nothing
    .remove(key: milk), .write(Data("sourdough".utf8), key: CacheKey(verbatim: "shopping/bread")),
  ])
  print(text as Any, try await notes.scan(.prefix("shopping/"), limit: 20).map(\.key))
}

// swift-format-ignore
@Suite(.disabled("Examples/CustomEngine runs such a line.")) struct ReadmeLine {
@Test(arguments: ConformanceSuite("MyEngine", capabilities: [.persistent]) { try MyEngine(directory: $0) }.checks)
func conforms(_ check: ConformanceCheck) async throws { try await check.run() }
}
