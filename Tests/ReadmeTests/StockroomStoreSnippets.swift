// The Swift code of the pages about queries and undo, which ReadmeTests compares with the pages.

import Foundation
import Observation
import StockroomStore

struct Chore: Codable, Sendable, Identifiable {
  var id: String
  var title: String
  var project: String
  var due: Date?
  var isDone = false
}

@MainActor @Observable final class ChoreList {
  let chores: Store<Chore>
  let open: StoreQuery<Chore, Never>
  let byProject: StoreQuery<Chore, String>

  init(_ chores: Store<Chore>) {
    self.chores = chores
    open = chores.query(where: { !$0.isDone }, sortedBy: .by(\.due).then(.by(\.title)), limit: 100)
    byProject = chores.query(sortedBy: .by(\.title), sectionedBy: { $0.project })
  }

  func printAll() {
    print("\(open.count) of \(open.totalCount) open chores")
    for chore in open.items { print(chore.title) }
    for section in byProject.sections {
      print(section.id, section.items.count)
    }
  }
}

@MainActor func organise(_ chores: Store<Chore>, _ chore: Chore) async throws {
  chores.undoLimit = StoreUndoLimit(calls: 50)

  try await chores.update(chore) { $0.isDone = true }
  try await chores.remove(chore)

  try await chores.undo()  // it is there again, and done
  try await chores.undo()  // and is not done
  try await chores.redo()  // and is
}
