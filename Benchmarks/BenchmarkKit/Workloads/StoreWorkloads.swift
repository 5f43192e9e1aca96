#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomStore

extension Workload {
  static let store: [Workload] =
    [load(10_000), decodeInOneLoop(10_000), load(100_000), decodeInOneLoop(100_000)]
    + [1_000, 10_000, 100_000].flatMap {
      [insertOne(beside: $0), replaceOne(among: $0), updateOne(among: $0), removeOne(among: $0)]
    }
    + [insertMany, encodeInOneLoop, chain]

  static let headline: [Workload] = [
    ofItems(10_000, "load-10000-objects", "Opens a store on 10,000 objects: reads and decodes all of them.") {
      try await loadStore($0, 10_000)
    },
    ofItems(5_000, "write-5000-objects", "Inserts 5,000 objects into an empty store with one call.") {
      try await insertManyItems($0)
    },
  ]

  /// A workload with `count` items of its own.
  private static func ofItems(
    _ count: Int, _ name: String, _ summary: String, body: @escaping Body
  ) -> Workload {
    Workload(
      name, summary, startsFrom: .nothing, leaves: .somethingElse, entries: count,
      valueSize: StoredItem.meanSize, body: body)
  }

  private static func load(_ count: Int) -> Workload {
    ofItems(count, "store-load-\(count)", "Opens a store on \(count) items: reads and decodes all of them.") {
      try await loadStore($0, count)
    }
  }

  /// The baseline of the workload above.
  private static func decodeInOneLoop(_ count: Int) -> Workload {
    ofItems(
      count, "loop-load-\(count)", "Reads \(count) items without a store and decodes each in one loop."
    ) { run in
      try await run.engine.write(StoredItem.entries(0..<count))
      let decoder = JSONDecoder()
      let items = try await run.measure(operations: count) { latencies in
        let items = try await run.engine.readAllData().map { try decoder.decode(StoredItem.self, from: $0) }
        latencies.record()
        return items
      }
      try verify(inAnyOrder: items, are: StoredItem.numbered(0..<count))
    }
  }

  private static func insertOne(beside count: Int) -> Workload {
    ofItems(
      count, "store-insert-one-\(count)", "Inserts 200 items into a store of \(count), one after another."
    ) { run in
      try await change(run, count, StoredItem.numbered(count..<count + 200)) { try await $0.insert($1) }
    }
  }

  private static func replaceOne(among count: Int) -> Workload {
    ofItems(
      count, "store-replace-one-\(count)", "Replaces 200 items of a store of \(count), one after another."
    ) { run in
      let replaced = StoredItem.numbered(0..<200, name: "another name")
      try await change(run, count, replaced) { try await $0.insert($1) }
    }
  }

  private static func updateOne(among count: Int) -> Workload {
    ofItems(
      count, "store-update-one-\(count)", "Updates 200 items of a store of \(count), one after another."
    ) { run in
      try await change(run, count, StoredItem.numbered(0..<200)) { store, item in
        try await store.update(item) { $0.age += 1 }
      }
    }
  }

  private static func removeOne(among count: Int) -> Workload {
    ofItems(
      count, "store-remove-one-\(count)", "Removes 200 items of a store of \(count), one after another."
    ) { run in
      try await change(run, count, StoredItem.numbered(0..<200)) { try await $0.remove($1) }
    }
  }

  private static let insertMany = ofItems(
    5_000, "store-insert-many", "Inserts 5,000 items into an empty store with one call."
  ) {
    try await insertManyItems($0)
  }

  /// The baseline of the workload above.
  private static let encodeInOneLoop = ofItems(
    5_000, "loop-insert-many",
    "Encodes 5,000 items in one loop and writes them as one batch, without a store."
  ) { run in
    let items = StoredItem.numbered(0..<5_000)
    let encoder = JSONEncoder()
    try await run.measure(operations: items.count) { latencies in
      try await run.engine.write(items.map { (CacheKey(verbatim: $0.id), try encoder.encode($0)) })
      latencies.record()
    }
    try await verify(run.engine, holds: items)
  }

  private static let chain = ofItems(
    1_000, "store-chain", "Replaces all of 1,000 items with a chain of removeAll and insert, 20 times."
  ) {
    try await replaceAll($0)
  }
}

// MARK: - On the main actor, to which stores are isolated

@MainActor private func loadStore(_ run: WorkloadRun, _ count: Int) async throws {
  try await run.engine.write(StoredItem.entries(0..<count))
  let store = try await run.measure(operations: count) { latencies in
    let store = try await Store<StoredItem>(storage: run.engine)
    latencies.record()
    return store
  }
  try verify(store, StoredItem.numbered(0..<count))
}

@MainActor private func insertManyItems(_ run: WorkloadRun) async throws {
  let items = StoredItem.numbered(0..<5_000)
  let store = try await Store<StoredItem>(storage: run.engine)
  try await run.measure(operations: items.count) { latencies in
    try await store.insert(items)
    latencies.record()
  }
  try verify(store, items)
  try await verify(run.engine, holds: items)
}

/// Makes one change after another to a store of `count` items.
@MainActor private func change(
  _ run: WorkloadRun, _ count: Int, _ items: [StoredItem],
  _ makeChange: (Store<StoredItem>, StoredItem) async throws -> Void
) async throws {
  try await run.engine.write(StoredItem.entries(0..<count))
  let store = try await Store<StoredItem>(storage: run.engine)
  try await run.measure(operations: items.count) { latencies in
    for item in items {
      try await makeChange(store, item)
      latencies.record()
    }
  }
  let reopened = try await Store<StoredItem>(storage: run.engine)
  try verify(store, reopened.items)
  guard store.items != StoredItem.numbered(0..<count) else {
    throw WrongAnswer("the items of the store are unchanged")
  }
}

@MainActor private func replaceAll(_ run: WorkloadRun) async throws {
  let store = try await Store<StoredItem>(storage: run.engine)
  let generations = (0..<20).map { StoredItem.numbered(0..<1_000, name: "generation \($0)") }
  try await run.measure(operations: generations.count) { latencies in
    for items in generations {
      try await store.removeAll().insert(items).run()
      latencies.record()
    }
  }
  try verify(store, generations[19])
  try await verify(Store(storage: run.engine), generations[19])
}

private func verify(_ engine: any StorageEngine, holds items: [StoredItem]) async throws {
  let codec = JSONCodec()
  let found = try await engine.readAllData().map { try codec.decode(StoredItem.self, from: $0) }
  try verify(inAnyOrder: found, are: items)
}

private func verify(inAnyOrder found: [StoredItem], are items: [StoredItem]) throws {
  guard found.sorted(by: { $0.id < $1.id }) == items.sorted(by: { $0.id < $1.id }) else {
    throw WrongAnswer("the \(found.count) items differ from the \(items.count) expected")
  }
}

@MainActor private func verify(_ store: Store<StoredItem>, _ items: [StoredItem]) throws {
  guard store.items == items else {
    throw WrongAnswer("the \(store.items.count) items of the store differ from the \(items.count) expected")
  }
}
