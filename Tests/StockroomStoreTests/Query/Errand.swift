import Foundation
import StockroomStore

/// An item with properties to filter, sort and group by.
struct Errand: Codable, Sendable, Identifiable, Equatable {
  var id: Int
  var rank = 0
  var place = ""
  var isDone = false
  var due: Int?

  static func random(id: Int) -> Errand {
    Errand(
      id: id, rank: .random(in: 0..<9), place: ["home", "office", "town"].randomElement() ?? "",
      isDone: .random(), due: .random() ? nil : .random(in: 0..<5))
  }

  static func random(_ ids: Range<Int>) -> [Errand] { ids.map { random(id: $0) } }
}

/// Queries with the expected contents of each.
@MainActor struct QueriesWithModels {
  let open: StoreQuery<Errand, Never>
  let byRank: StoreQuery<Errand, Never>
  let byPlace: StoreQuery<Errand, String>
  let byDone: StoreQuery<Errand, String>
  let store: Store<Errand>

  init(_ store: Store<Errand>) {
    self.store = store
    open = store.query(where: { !$0.isDone })
    byRank = store.query(
      where: { $0.rank > 2 }, sortedBy: .by(\.rank, .reverse).then(.by(\.due)), limit: 20)
    byPlace = store.query(sortedBy: .by(\.rank), sectionedBy: { $0.place })
    byDone = store.query(
      where: { $0.due != 3 }, sectionedBy: { $0.isDone ? "done" : "open" }, sectionOrder: .reverse, limit: 40)
  }

  var areLoaded: Bool { open.isLoaded && byRank.isLoaded && byPlace.isLoaded && byDone.isLoaded }

  func itemsHaveLoaded() async {
    await open.itemsHaveLoaded()
    await byRank.itemsHaveLoaded()
    await byPlace.itemsHaveLoaded()
    await byDone.itemsHaveLoaded()
  }

  private func sorted(_ items: [Errand], _ areInOrder: (Errand, Errand) -> Bool?) -> [Errand] {
    items.enumerated().sorted { areInOrder($0.element, $1.element) ?? ($0.offset < $1.offset) }.map(\.element)
  }

  /// Whether each query shows the filtered and sorted items of the store. Queries that are not loaded are
  /// skipped.
  func areRight() -> Bool {
    let items = store.items
    if open.isLoaded {
      guard open.items.elementsEqual(items.filter { !$0.isDone }), open.sections.isEmpty else { return false }
    }
    if byRank.isLoaded {
      let expected = sorted(items.filter { $0.rank > 2 }) { first, second in
        if first.rank != second.rank { return first.rank > second.rank }
        return first.due == second.due ? nil : (first.due ?? -1) < (second.due ?? -1)
      }
      guard Array(byRank.items) == Array(expected.prefix(20)), byRank.totalCount == expected.count,
        byRank.count == min(20, expected.count)
      else { return false }
    }
    if byPlace.isLoaded {
      let expected = sorted(items) { $0.rank == $1.rank ? nil : $0.rank < $1.rank }
      let groups = Dictionary(grouping: expected, by: \.place)
      guard byPlace.sections.map(\.id) == groups.keys.sorted(),
        byPlace.sections.allSatisfy({ Array($0.items) == groups[$0.id] }), byPlace.count == items.count
      else { return false }
    }
    if byDone.isLoaded {
      let matching = items.filter { $0.due != 3 }
      let expected = matching.filter { !$0.isDone } + matching.filter(\.isDone)
      guard Array(byDone.items) == Array(expected.prefix(40)),
        byDone.sections.flatMap(\.items) == Array(byDone.items), byDone.totalCount == expected.count,
        byDone.sections.allSatisfy({ section in
          section.items.allSatisfy { $0.isDone == (section.id == "done") }
        })
      else { return false }
    }
    return true
  }
}

extension Store<Errand> {
  /// Makes one random change: removes, inserts or updates at most `most` items with ids below `count`.
  func changeAtRandom(below count: Int, most: Int) async throws {
    let start = Int.random(in: 0..<count)
    let some = Errand.random(start..<min(count, start + Int.random(in: 1...most)))
    switch Int.random(in: 0..<40) {
    case 0: try await removeAll()
    case 1: try await removeAll().insert(some).run()
    case 2..<6: try await remove(some[0]).insert(Errand.random(id: start)).remove(Errand(id: start / 2)).run()
    case 6..<12: try await remove(some)
    case 12..<16: try await insert(some)
    case 16..<24: try await remove(some[0])
    case 24..<32: try await insert(some[0])
    default: try await update("\(start)") { $0 = .random(id: $0.id) }
    }
  }
}
