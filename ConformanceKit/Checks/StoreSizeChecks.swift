import StockroomCore

// Stores with any number of items: rules S3 and S4.

extension CheckDefinition {
  @CheckList static var storeSizeChecks: [CheckDefinition] {
    Check(
      .s4, "store.sizes", "a new store loads any number of items in insertion order"
    ) { try await checkSizes($0) }
    Check(
      .s3, "store.sizes-of-chains",
      "inserting, removing and chaining any number of items changes all of them, in the store and in the "
        + "engine"
    ) { try await checkLargeChanges($0) }
  }
}

extension CheckContext {
  /// The numbers of items that a check uses, in order.
  ///
  /// - Parameter writes: How often each item is written.
  fileprivate func itemCounts(writes: Int) async throws -> [Int] {
    let most = budget.level == .exhaustive ? 100_001 : 4_097
    let affordable = try await affordableEntries().writes / writes
    let ladder = SizeLadder(budget.level)
    let counts = ladder.affordable(affordable).ends.filter { $0 <= most }
    let (last, wanted) = (counts.last ?? 0, ladder.ends.last { $0 <= most } ?? 0)
    if last < wanted { noteShortfall("\(last) of \(wanted) items") }
    return counts
  }
}

/// Adds items to a store, and checks which items a new one loads.
@MainActor private func checkSizes(_ context: CheckContext) async throws {
  var fixture = try await context.openStore()
  var reached = 0
  for count in try await context.itemCounts(writes: 1) {
    context.noteProgress()
    let items = (0..<count).map { CheckedItem($0) }
    try await fixture.perform(.insert(Array(items.dropFirst(reached))))
    try await letClockTick()
    fixture = try await fixture.restarted()
    try await fixture.expectShown(
      items, "no failure with \(reached) items; with \(count) the items of a new store")
    reached = count
  }
}

/// Inserts, replaces and removes many items with each kind of call.
@MainActor private func checkLargeChanges(_ context: CheckContext) async throws {
  var fixture = try await context.openStore()
  for count in try await context.itemCounts(writes: 6) {
    context.noteProgress()
    let items = (0..<count).map { CheckedItem($0) }
    let new = items.map { CheckedItem($0.id, version: 2) }
    try await fixture.perform(.insert(items))
    try await fixture.perform(.insert(new))
    try await fixture.expectItems(new, "after \(count) items were replaced")
    try await fixture.run([.remove(new), .insert(items)])
    try await fixture.expectItems(items, "after a chain that removed and inserted \(count) items")
    try await fixture.run([.insert([CheckedItem("last")]), .remove(Array(items.dropFirst()))])
    let left = [items[0], CheckedItem("last")]
    try await fixture.expectItems(left, "after \(count - 1) of \(count) items were removed and one inserted")
    fixture = try await fixture.restarted()
    try await fixture.expectShown(
      left, "the items of a new store after \(count - 1) of \(count) were removed")
    if count.isMultiple(of: 2) {
      try await fixture.run([.insert(items), .removeAll])
    } else {
      try await fixture.perform(.removeAll)
    }
    try await fixture.expectItems([], "after all were removed")
  }
}
