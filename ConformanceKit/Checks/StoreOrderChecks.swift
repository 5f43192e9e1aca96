import StockroomCore

// The order of a store's items: rule S4.

extension CheckDefinition {
  @CheckList static var storeOrderChecks: [CheckDefinition] {
    Check(
      .s4, "store.order-of-insertion",
      "items are in insertion order, inserted one by one or many at a time, and a new store has the same "
        + "order"
    ) { try await checkInsertions($0) }
    Check(
      .s4, "store.replaces-in-place",
      "inserting an existing identifier replaces the item in its position, also in a new store"
    ) { try await checkReplacements($0) }
    Check(
      .s4, "store.reinserts-at-the-end",
      "an item that was removed and inserted again is the last one, also in a new store"
    ) { try await checkReinsertions($0) }
  }
}

/// Makes the changes one by one. Fails unless the items always are in the right order, and a new store has them in that
/// order at the end. Returns the items of the new store.
@MainActor @discardableResult
private func checkOrder(
  _ context: CheckContext, after changes: [CheckedChange]
) async throws -> StoreFixture {
  let fixture = try await context.openStore()
  var expected: [CheckedItem] = []
  for change in changes {
    try await fixture.perform(change)
    expected.apply(change)
    try expectSame(fixture.store.items, expected, "the items after \(change)")
    try await letClockTick()
  }
  try await fixture.expectItems(expected, "in the end")
  let fresh = try await fixture.expectAgreement("in the end")
  // Items inserted by a new store follow the ones that it loaded.
  for change in [CheckedChange.insert([CheckedItem("0")]), .insert([CheckedItem("~")])] {
    try await fresh.perform(change)
    expected.apply(change)
  }
  try expectSame(
    Array(fresh.store.items.suffix(2)), Array(expected.suffix(2)), "the last two items of a new store")
  return try await fresh.expectAgreement("after two more insertions")
}

@MainActor private func checkInsertions(_ context: CheckContext) async throws {
  try await checkOrder(
    context,
    after: [
      .insert([CheckedItem("m")]), .insert([CheckedItem("z")]), .insert([CheckedItem("a")]),
      .insert((0..<12).map { CheckedItem($0) }), .insert([CheckedItem("b")]),
      .insert([CheckedItem(21), CheckedItem(22), CheckedItem(21, version: 2), CheckedItem(20)]),
    ])
}

@MainActor private func checkReplacements(_ context: CheckContext) async throws {
  try await checkOrder(
    context,
    after: [
      .insert((0..<8).map { CheckedItem($0) }), .insert([CheckedItem(3, version: 2)]),
      .insert([CheckedItem(0, version: 2)]),
      .insert([CheckedItem(6, version: 2), CheckedItem(20), CheckedItem(1, version: 2)]),
      .insert([CheckedItem(7, version: 2)]), .insert([CheckedItem(3, version: 3)]),
    ])
}

@MainActor private func checkReinsertions(_ context: CheckContext) async throws {
  let fixture = try await checkOrder(
    context,
    after: [
      .insert((0..<8).map { CheckedItem($0) }), .remove([CheckedItem(2)]),
      .insert([CheckedItem(2, version: 2)]),
      .remove([CheckedItem(0), CheckedItem(5), CheckedItem(99)]), .insert([CheckedItem(6, version: 2)]),
      .insert([CheckedItem(5), CheckedItem(0)]),
    ])
  // In a chain as well.
  let chain: [CheckedChange] = [.remove([CheckedItem(3)]), .insert([CheckedItem(3, version: 4)])]
  var expected = fixture.store.items
  for change in chain { expected.apply(change) }
  try await letClockTick()
  try await fixture.run(chain)
  try await fixture.expectItems(expected, "after a chain that removed and inserted an item")
  try await fixture.expectAgreement("after a chain that removed and inserted an item")
}
