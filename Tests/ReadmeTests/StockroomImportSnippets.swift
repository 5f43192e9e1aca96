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
  if try await engine.keyCount() == 0 {
    let source = BodegaSQLiteSource(at: FileManager.Directory.documents(appendingPath: "Postcards").url)
    try await source.import(into: engine)
  }
  return try await Store<Postcard>(storage: engine)
}
