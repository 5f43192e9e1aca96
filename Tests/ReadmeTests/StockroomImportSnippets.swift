// The Swift code of StockroomImport.md, which ReadmeTests compares with the page.

import Foundation
import StockroomCore
import StockroomImport
import StockroomSQLite
import StockroomStore

struct Recipe: Codable, Sendable, Identifiable {
  var id: String
  var title: String
}

@MainActor
func openRecipes() async throws -> Store<Recipe> {
  let engine = try SQLiteStorageEngine(directory: .documents(appendingPath: "Stockroom/Recipes"))
  if try await engine.keyCount() == 0 {
    let source = BodegaSQLiteSource(at: FileManager.Directory.documents(appendingPath: "Recipes").url)
    try await source.import(into: engine)
  }
  return try await Store<Recipe>(storage: engine)
}
