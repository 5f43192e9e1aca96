// The Swift code of ChangingTypes.md, which ReadmeTests compares with the page.

import StockroomCore
import StockroomStore

struct FirstRecipe: Codable, Sendable {
  var id: String
  var text: String
}

struct Recipe: VersionedItem, Identifiable {
  var id: String
  var steps: [String]

  init(migrating previous: FirstRecipe) {
    id = previous.id
    steps = previous.text.split(separator: "\n").map(String.init)
  }
}

@MainActor func openRecipes(in engine: some StorageEngine) async throws -> Store<Recipe> {
  let recipes = try await Store<Recipe>(storage: engine)
  recipes.startRewritingOldVersions()
  return recipes
}

@MainActor func progress(of recipes: Store<Recipe>) -> String {
  switch recipes.rewritingState {
  case .notStarted: "The recipes stay as they are until they change."
  case .rewriting(let completed, let total): "\(completed) of \(total)"
  case .rewritten(let count): "\(count) have been rewritten."
  case .failed(let error): "It failed: \(error). Call startRewritingOldVersions() to go on."
  }
}

func rewriteRecipes(in engine: some StorageEngine) async throws {
  let recipes = ObjectStorage<Recipe>(storage: engine)
  let result = try await recipes.rewriteOldVersions(forKeys: engine.allKeys()) { done, total in
    print("\(done) of \(total)")
  }
  print(result.rewritten, result.unreadable.map(\.key))
}
