#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomTestSupport

// The cost of one item: rule S7.

extension CheckDefinition {
  @CheckList static var storeCostChecks: [CheckDefinition] {
    Check(
      .s7, "store.cost-in-calls",
      "inserting, replacing or removing one item makes the same number of calls to the engine, with as many "
        + "bytes, among many items as among few"
    ) { try await checkCalls($0) }
    Check(
      .s7, "store.cost-in-time",
      "inserting or replacing one item takes no longer among 20,000 items than among 100"
    ) { try await checkTime($0) }
  }
}

/// Changes of one item, in rotation.
private let changes: [CheckedChange] = [
  .insert([CheckedItem("new")]), .insert([CheckedItem(7, version: 2)]), .remove([CheckedItem(8)]),
  .insert([CheckedItem("new", version: 2)]),
]

@MainActor private func checkCalls(_ context: CheckContext) async throws {
  let (few, time) = try await costs(context, count: 100)
  // A slow engine does not have to write thousands of entries.
  let (many, _) = try await costs(context, count: time > .milliseconds(20) ? 300 : 5_000)
  for (index, change) in changes.enumerated() {
    try expect(many[index], is: few[index], "\(change) among many items, compared with few,")
  }
}

/// The number of engine calls of each change with this many items, and the time that inserting the items takes.
@MainActor private func costs(_ context: CheckContext, count: Int) async throws -> ([[String]], Duration) {
  let place = context.root.appending(path: "store-\(count)", directoryHint: .isDirectory)
  let fixture = StoreFixture(context, try await context.open(place))
  try await fixture.load()
  let time = try await ContinuousClock().measure {
    try await fixture.perform(.insert((0..<count).map { CheckedItem($0) }))
  }
  var costs: [[String]] = []
  for change in changes {
    fixture.engine.resetCalls()
    try await fixture.perform(change)
    await letOthersRun()
    let calls = fixture.engine.calls
    for call in calls where readsOfEverything.contains(call.method) {
      throw Violation("\(change) among \(count) items called \(call), which reads everything")
    }
    costs.append(calls.map { "\($0), \($0.byteCount) bytes" })
  }
  return (costs, time)
}

private let readsOfEverything: Set<FailingStorageEngine.Call.Method> = [
  .readAllData, .readAllDataAndKeys, .readAllEntries, .allKeys, .scan,
]

/// Compares the fastest of many changes among few items with the fastest of as many changes among two hundred times as
/// many items: the fastest, because the machine may be busy at any time. It repeats this as long as the cost seems to
/// grow.
///
/// The time of the engine's calls is not included.
@MainActor private func checkTime(_ context: CheckContext) async throws {
  let stores = [context.makeStore(PlainEngine()), context.makeStore(PlainEngine())]
  for (store, count) in zip(stores, [100, 20_000]) {
    try await store.itemsHaveLoaded()
    try await store.perform(.insert((0..<count).map { CheckedItem($0) }))
  }
  let kinds: [(name: String, change: (Int) -> CheckedChange)] = [
    ("an insertion", { .insert([CheckedItem("new \($0)")]) }),
    ("a replacement", { .insert([CheckedItem(50, version: Double($0))]) }),
  ]
  for kind in kinds {
    var best: [Duration] = [.seconds(1_000), .seconds(1_000)]
    var bestCopy = Duration.seconds(1_000)
    var worstOfFew = Duration.zero
    for round in 1... {
      // Each store goes first in every other round. Otherwise other work on the main actor might always delay the same
      // store.
      for index in round.isMultiple(of: 2) ? [0, 1] : [1, 0] {
        let store = stores[index]
        let time = try await ContinuousClock().measure { try await store.perform(kind.change(round)) }
        best[index] = min(best[index], time)
        if index == 0 { worstOfFew = max(worstOfFew, time) }
      }
      bestCopy = min(bestCopy, timeOfCopying(stores[1].items))
      let grows = best[1] > best[0] * 3 && best[1] > best[0] + bestCopy / 2
      if round >= 60, !grows { break }
      // If the fastest change is so much slower than the slowest one among few items, the number of items is the
      // reason.
      let isHopeless = best[1] > best[0] * 20 && best[1] > worstOfFew * 2 && best[1] > best[0] + bestCopy * 20
      guard round < (isHopeless ? 20 : 120) else {
        throw Violation(
          "\(kind.name) took \(best[0].inSeconds * 1e6) µs among 100 items and \(best[1].inSeconds * 1e6) µs among 20,000"
        )
      }
    }
  }
}

/// The time to copy all items. No operation on all items is faster.
private func timeOfCopying(_ items: [CheckedItem]) -> Duration {
  ContinuousClock().measure {
    var copy = items
    copy.append(CheckedItem("copy"))
    withExtendedLifetime(copy) {}
  }
}

/// A minimal engine of the kit.
private final class PlainEngine: StorageEngine {
  private let entries = MutexProtected<[CacheKey: StorageEntry]>([:])

  func write(_ data: Data, key: CacheKey) async throws {
    try key.validate()
    let now = Date()
    entries.withLock { entries in
      let createdAt = entries[key]?.createdAt ?? now
      entries[key] = StorageEntry(key: key, data: data, createdAt: createdAt, updatedAt: now)
    }
  }

  func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return entries.withLock { $0[key]?.data }
  }

  func remove(key: CacheKey) async throws {
    try key.validate()
    entries.withLock { _ = $0.removeValue(forKey: key) }
  }

  func allKeys() async throws -> [CacheKey] { entries.withLock { Array($0.keys) } }

  func createdAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return entries.withLock { $0[key]?.createdAt }
  }

  func updatedAt(key: CacheKey) async throws -> Date? {
    try key.validate()
    return entries.withLock { $0[key]?.updatedAt }
  }
}
