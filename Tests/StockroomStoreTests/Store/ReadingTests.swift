import Dispatch
import Foundation
import StockroomCore
import StockroomMemory
import StockroomStore
import StockroomTestSupport
import Testing

@MainActor @Suite("Reading single items of a store") struct ReadingTests {
  /// Reads of a store during a change off the main actor.
  @MainActor private final class Observations {
    var agree: [Bool] = []

    func observe(_ store: Store<Note>, _ ids: [String]) {
      let present = Set(store.items.map(\.id))
      agree += ids.map { id in
        store.contains(id: id) == present.contains(id) && (store[id]?.id == id) == present.contains(id)
      }
    }
  }

  @Test("Single items agree with all items during a large change off the main actor")
  func largeChange() async throws {
    let store = try await Store<Note>(storage: .memory())
    try await store.insert(Note.numbered(0..<6_000))
    let observations = Observations()
    let isArmed = Shared(false)
    // The predicate is called in the middle of the change.
    let query = store.query(where: { _ in
      guard !Thread.isMainThread, isArmed.withLock({ exchange(&$0, with: false) }) else { return true }
      DispatchQueue.main.sync {
        MainActor.assumeIsolated { observations.observe(store, ["note 0", "note 5999", "note 7000"]) }
      }
      return true
    })
    await query.itemsHaveLoaded()
    for change in [
      { try await store.insert(Note.numbered(3_000..<9_000)) },
      { try await store.remove(Note.numbered(0..<5_000)) }, { try await store.removeAll() },
      { try await store.insert(Note.numbered(0..<6_000)) },
    ] as [() async throws -> Void] {
      isArmed.withLock { $0 = true }
      try await change()
      observations.observe(store, ["note 0", "note 5999", "note 7000"])
    }
    #expect(observations.agree.count >= 12 + 6 && observations.agree.allSatisfy(\.self))
    #expect(query.count == 6_000)
  }
}
