// The Swift code of Queries.md, which ReadmeTests compares with the page.

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
