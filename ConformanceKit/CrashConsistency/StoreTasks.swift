#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomStore

// Tasks that work with a store in front of the engine.

/// The items of a store: all of one generation, or all of the next.
enum Generation {
  /// Sixty items. Half of them have identifiers that the previous generation has as well.
  static func items(_ number: Int) -> [CheckedItem] {
    number == 0 ? [] : (0..<60).map { CheckedItem(number * 30 + $0, version: Double(number)) }
  }
}

/// Opens a store, sends 0, and forever replaces one generation by the next in a chain. Sends the number of each
/// acknowledged generation.
struct RunChains: WorkerTask {
  let place: URL
  let first: Int

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine, send: @Sendable (Int) throws -> Void
  ) async throws {
    let store = await StoreUnderTest(try await open(place, makeEngine))
    try await store.itemsHaveLoaded()
    try send(0)
    for number in first... {
      try await store.chain([.removeAll, .insert(Generation.items(number))])()
      try send(number)
    }
  }
}

/// Opens a store, closes its engine again and sends the items in order.
struct ReadStore: WorkerTask {
  let place: URL

  func run(
    makeEngine: @Sendable (URL) async throws -> any StorageEngine,
    send: @Sendable ([CheckedItem]) throws -> Void
  ) async throws {
    let engine = try await open(place, makeEngine)
    try await ExpectedContents.settle(engine)
    let store = await StoreUnderTest(engine)
    try await store.itemsHaveLoaded()
    let (items, unreadable) = await (store.items, store.unreadableKeys)
    if let key = unreadable.first { throw Violation("the item under \(key) could not be decoded", rule: .s3) }
    try await engine.close()
    engine.release()
    try send(items)
  }
}
