import StockroomCore
import StockroomStore

// Changes by others in the engine of a store: rules S9 and S10.

extension CheckDefinition {
  @CheckList static var storeFollowingChecks: [CheckDefinition] {
    Check(
      .s9, "store.follows-another",
      "changes by one store appear in another one in front of the same engine, in the same order",
      needs: .changeFeed
    ) { try await checkFollowing(try await openTwoStores($0)) }
    Check(
      .s9, "store.follows-another-engine",
      "changes by one store appear in another one in front of another engine on the place",
      needs: [.changeFeed, .persistent]
    ) { context in
      let engine = try await context.open()
      guard let other = try await context.openUnlessLocked(context.place) else { return }
      try await checkFollowing(try await openTwoStores(context, in: engine, other))
      try await context.close(other)
    }
    Check(
      .s9, "store.follows-the-engine",
      "changes made directly in the engine appear in a store",
      needs: .changeFeed
    ) { try await checkFollowingEngine($0) }
    Check(
      .s9, "store.converges",
      "two stores that change the same items concurrently agree in the end, in the order of a new store",
      needs: [.changeFeed, .atomicBatches]
    ) { try await checkConvergence($0) }
    Check(
      .s10, "store.updates-add-up",
      "no update of one item by many tasks and two stores is lost",
      needs: .transactions
    ) { try await checkUpdates($0) }
    Check(
      .s10, "store.update-that-throws",
      "an update that throws changes neither the item nor the engine, and its error reaches the caller",
      needs: .transactions
    ) { try await checkFailingUpdate($0) }
  }
}

/// Skips the check if the engine also reports a store's own changes to that store. A store does not follow such an
/// engine.
private func requireOrigins(_ engine: EngineUnderTest) async throws {
  let origin = ChangeOrigin()
  let changes = try await ChangeOrigin.$current.withValue(origin) { try await engine.changes() }
  if changes.origin === origin { return }
  throw Skip(reason: "The engine reports the store's own changes to it (see ChangeOrigin).")
}

private typealias TwoStores = (one: StoreFixture, other: StoreFixture)

/// Two stores in front of one engine.
@MainActor private func openTwoStores(_ context: CheckContext) async throws -> TwoStores {
  let engine = try await context.open()
  return try await openTwoStores(context, in: engine, engine)
}

/// Two stores, each with a pass-through engine in between.
@MainActor private func openTwoStores(
  _ context: CheckContext, in engine: EngineUnderTest, _ other: EngineUnderTest
) async throws -> TwoStores {
  let stores = (one: StoreFixture(context, engine), other: StoreFixture(context, other))
  try await stores.one.load()
  try await stores.other.load()
  return stores
}

/// Returns once the store has these items. Fails if it has others for half of the stall timeout, at most a minute, of
/// running time.
///
/// - Parameter unreadable: The keys of the entries that cannot be decoded. Nil if they do not matter.
@MainActor
private func waitForItems(
  _ expected: [CheckedItem], unreadable: [CacheKey]? = nil, in fixture: StoreFixture
) async throws {
  // Other work may block the main actor, which the store needs, for seconds.
  var limit = RunningTimeLimit(fixture.context.timeout(atMost: .seconds(60)))
  while true {
    let areShown = try await fixture.shows(expected)
    let keys = fixture.store.unreadableKeys
    if areShown, keys == unreadable ?? keys { break }
    if limit.isOver() {
      guard areShown, let unreadable else {
        return try expectSame(fixture.store.items, expected, "the items of a store that follows another one")
      }
      throw Violation(
        "the list of unreadable entries of a store that follows another one was \(describe(keys)) instead of "
          + "\(describe(unreadable))", rule: .s6)
    }
    try await Task.sleep(for: .milliseconds(1))
  }
  fixture.context.noteProgress()
}

@MainActor private func checkFollowing(_ stores: TwoStores) async throws {
  let (one, other) = stores
  try await requireOrigins(one.engineUnderTest)
  var expected: [CheckedItem] = []
  let changes: [CheckedChange] = [
    .insert([CheckedItem("a")]), .insert((0..<20).map { CheckedItem($0) }),
    .insert([CheckedItem(3, version: 2)]),
    .remove([CheckedItem("a")]), .insert([CheckedItem("a", version: 2)]),
    .remove((5..<9).map { CheckedItem($0) }),
    .removeAll, .insert([CheckedItem("z"), CheckedItem("y")]),
  ]
  for (index, change) in changes.enumerated() {
    // Alternately, so that each store has its own items and the other's.
    try await (index.isMultiple(of: 2) ? one : other).perform(change)
    expected.apply(change)
    try await waitForItems(expected, in: one)
    try await waitForItems(expected, in: other)
    try await letClockTick()
  }
  try await one.expectAgreement("of a store that another one has changed too")
}

@MainActor private func checkFollowingEngine(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await requireOrigins(fixture.engineUnderTest)
  let codec = JSONCodec()
  try await fixture.insert(CheckedItem("a"), CheckedItem("b"))
  let changed = CheckedItem("a", version: 2)
  try await fixture.engineUnderTest.write(try codec.encode(changed), key: CacheKey(verbatim: "a"))
  try await waitForItems([changed, CheckedItem("b")], in: fixture)
  try await letClockTick()
  try await fixture.engineUnderTest.write(try codec.encode(CheckedItem("c")), key: CacheKey(verbatim: "c"))
  try await waitForItems([changed, CheckedItem("b"), CheckedItem("c")], in: fixture)
  try await fixture.engineUnderTest.remove(key: CacheKey(verbatim: "b"))
  try await waitForItems([changed, CheckedItem("c")], in: fixture)
  try await fixture.engineUnderTest.removeAllData()
  try await waitForItems([], in: fixture)
  // Changes the engine by every method, right after a change by the store, so that the store might mistake one change
  // for the other.
  var expected: [CheckedItem] = []
  let methods = ChangeMethod.writing(fixture.context.capabilities).filter { $0 != .writeEntries }
  for (number, method) in methods.enumerated() {
    let (own, new) = (CheckedItem("own\(number)"), CheckedItem("new\(number)"))
    try await fixture.insert(own)
    try await letClockTick()
    let entry = (key: CacheKey(verbatim: "new\(number)"), data: try codec.encode(new))
    try await method.perform([entry], in: fixture.engineUnderTest)
    try await letClockTick()
    expected += [own, new]
    try await waitForItems(expected, in: fixture)
  }
  try await followUnusualChanges(expected, in: fixture)
}

/// Makes the entry of the first item unreadable and readable again, and then changes more entries than the feed of an
/// engine need report one by one.
///
/// - Parameter items: The items of the store.
@MainActor private func followUnusualChanges(
  _ items: [CheckedItem], in fixture: StoreFixture
) async throws {
  let (engine, codec) = (fixture.engineUnderTest, JSONCodec())
  let (first, others) = (CacheKey(verbatim: items[0].id), Array(items.dropFirst()))
  try await engine.write(data("not JSON"), key: first)
  try await waitForItems(others, unreadable: [first], in: fixture)
  let again = CheckedItem(items[0].id, version: 3)
  try await engine.write(try codec.encode(again), key: first)
  try await waitForItems([again] + others, unreadable: [], in: fixture)

  try await letClockTick()
  let count = try await fixture.context.affordableCount(1_100, of: "items")
  let many = (0..<count).map { CheckedItem("many \($0)") }
  let entries = try many.map { (key: CacheKey(verbatim: $0.id), data: try codec.encode($0)) }
  try await engine.write(entries)
  try await waitForItems([again] + others + many, in: fixture)
  try await engine.remove(keys: entries.dropFirst(10).map(\.key))
  try await waitForItems([again] + others + many.prefix(10), in: fixture)
}

@MainActor private func checkConvergence(_ context: CheckContext) async throws {
  let (one, other) = try await openTwoStores(context)
  try await requireOrigins(one.engineUnderTest)
  for round in 0..<3 {
    let tasks = [("one", one), ("other", other)].map { name, fixture in
      Task {
        for step in 0..<10 {
          try await fixture.insert(
            CheckedItem("\(name) \(round) \(step)"), CheckedItem(step, version: Double(round)))
          if step % 3 == 2 { try await fixture.remove(CheckedItem(step - 1)) }
        }
      }
    }
    for task in tasks { try await task.value }
    context.noteProgress()
  }
  let fresh = StoreFixture(context, one.engineUnderTest)
  try await fresh.load()
  try await waitForItems(fresh.store.items, in: one)
  try await waitForItems(fresh.store.items, in: other)
}

@MainActor private func checkUpdates(_ context: CheckContext) async throws {
  let (one, other) = try await openTwoStores(context)
  let item = CheckedItem("counter", version: 0)
  try await one.insert(item)
  let tasks = [one, other, one, other, one, other, one, other].map { fixture in
    Task {
      for _ in 0..<10 { try await fixture.update(item, adding: 1) }
    }
  }
  for task in tasks { try await task.value }
  try expectSame(
    try await one.storedItems(likely: []), [CheckedItem("counter", version: 80)],
    "what the engine held after 80 updates that add 1")
}

/// The error that an update throws.
private struct Refusal: Error {}

@MainActor private func checkFailingUpdate(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  let items = [CheckedItem("a"), CheckedItem("b")]
  try await fixture.perform(.insert(items))
  do {
    try await fixture.update(items[0], adding: 1, refusal: Refusal())
    throw Violation("an update whose closure threw returned")
  } catch is Refusal {}
  try await fixture.expectItems(items, "after an update that threw")
  try await fixture.update(items[0], adding: 1)
  try await fixture.expectItems([CheckedItem("a", version: 2), items[1]], "after an update")
  try await updateWhatOthersChanged(fixture)
}

/// Updates items that have just been changed or removed in the engine, which the store need not show yet.
@MainActor private func updateWhatOthersChanged(_ fixture: StoreFixture) async throws {
  let (changed, removed) = (CacheKey(verbatim: "a"), CacheKey(verbatim: "b"))
  let encoded = try JSONCodec().encode(CheckedItem("a", version: 10))
  try await fixture.engineUnderTest.write(encoded, key: changed)
  try await fixture.update(CheckedItem("a"), adding: 1)
  let updated = CheckedItem("a", version: 11)
  let stored = try await fixture.storedItems(likely: [])
  try expect(
    stored.contains(updated) && fixture.store.items.contains(updated),
    "after an update that should have made \(updated) of an item that had just been changed in the engine, the engine "
      + "held \(describe(stored)), and the items were \(describe(fixture.store.items))")
  try await fixture.engineUnderTest.remove(key: removed)
  // A store may refuse to update an item that is no longer there.
  do { try await fixture.update(CheckedItem("b"), adding: 1) } catch {}
  try expect(
    try await fixture.engineUnderTest.read(key: removed), is: nil,
    "what was stored after an update of an item that had been removed from the engine")
}
