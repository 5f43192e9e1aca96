// The Swift code of Undo.md, which ReadmeTests compares with the page.

import StockroomStore

@MainActor func organize(_ chores: Store<Chore>, _ chore: Chore) async throws {
  chores.undoLimit = StoreUndoLimit(calls: 50)

  try await chores.update(chore) { $0.isDone = true }
  try await chores.remove(chore)

  try await chores.undo()  // it is there again, and done
  try await chores.undo()  // and is not done
  try await chores.redo()  // and is
}
