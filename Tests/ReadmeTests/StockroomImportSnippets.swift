// The Swift code of StockroomImport.md, which ReadmeTests compares with the page.

import Foundation
import StockroomCore
import StockroomImport
import StockroomSQLite
import StockroomStore

struct Postcard: Codable, Sendable, Identifiable {
  var id: String
  var title: String
}

@MainActor
func openPostcards() async throws -> Store<Postcard> {
  let engine = try SQLiteStorageEngine(directory: .documents(appendingPath: "Stockroom/Postcards"))
  let old = FileManager.Directory.documents(appendingPath: "Postcards").url
  let isImported = "isPostcardsImported"
  if !UserDefaults.standard.bool(forKey: isImported), FileManager.default.fileExists(atPath: old.path) {
    // Merging, so that an import which was interrupted is completed by the next.
    try await BodegaSQLiteSource(at: old).import(into: engine, merging: true)
    UserDefaults.standard.set(true, forKey: isImported)
  }
  return try await Store<Postcard>(storage: engine)
}
