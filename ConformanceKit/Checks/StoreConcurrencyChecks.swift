import StockroomCore

// Concurrent calls to a store: rule S1.

extension CheckDefinition {
  @CheckList static var storeConcurrencyChecks: [CheckDefinition] {
    Check(
      .s1, "store.concurrent-inserts",
      "100 items inserted concurrently are all in the store, in the engine and in a new store"
    ) { try await checkInserts($0) }
    Check(
      .s1, "store.concurrent-changes",
      "after concurrent insertions, replacements, removals and chains, the store, the engine and a new store "
        + "agree, as after some order of the calls"
    ) { try await checkChanges($0) }
    Check(
      .s1, "store.changes-while-loading",
      "changes before the items have been loaded are not lost"
    ) { try await checkChangesWhileLoading($0) }
  }
}

@MainActor private func checkInserts(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  let items = (0..<100).map { CheckedItem($0) }
  for result in await fixture.performAtOnce(items.map { .insert([$0]) }) { try result.get() }
  let missing = Set(items).subtracting(fixture.store.items)
  try expect(
    missing.isEmpty,
    "after 100 concurrent insertions \(missing.count) were not there, as \(missing.first ?? items[0])")
  try expect(fixture.store.items.count, is: 100, "the number of items after 100 concurrent insertions")
  try await fixture.expectAgreement("after concurrent insertions")
}

@MainActor private func checkChanges(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  // Holds and releases the engine's writes in turn, so that calls overlap at every point.
  let pulse = Task {
    while !Task.isCancelled {
      fixture.engine.hold(where: \.isWrite)
      await letOthersRun()
      fixture.engine.release()
      await letOthersRun()
    }
  }
  defer { pulse.cancel() }
  try await gather(0..<12) { number in
    func own(_ name: String, _ version: Double = 1) -> CheckedItem {
      CheckedItem("\(name) \(number)", version: version)
    }
    try await fixture.insert(own("a"))
    let shared = CheckedItem("shared \(number % 3)", version: Double(number))
    try await fixture.run([.insert([own("b"), shared]), .remove([own("a")])])
    try await fixture.insert(own("c"), own("a", 2))
    try await fixture.insert(own("b", 2))
    try await fixture.remove(own("c"))
  }
  pulse.cancel()
  await pulse.value
  let items = fixture.store.items
  for number in 0..<12 {
    for name in ["a", "b"] {
      let item = CheckedItem("\(name) \(number)", version: 2)
      try expect(items.contains(item), "after concurrent changes \(item) was missing")
    }
    try expect(
      !items.contains(CheckedItem("c \(number)")), "a removed item was there after concurrent changes")
  }
  for item in items where item.id.hasPrefix("shared") {
    let number = Int(item.version)
    try expect(item.id == "shared \(number % 3)", "\(item) was there, although it was never inserted")
  }
  try expect(items.count, is: 27, "the number of items after concurrent changes")
  try await fixture.expectAgreement("after concurrent changes")
}

@MainActor private func checkChangesWhileLoading(_ context: CheckContext) async throws {
  let before = try await context.openStore()
  try await before.perform(.insert((0..<5).map { CheckedItem($0) }))
  let fixture = StoreFixture(context, before.engineUnderTest) { $0.hold(where: \.isRead) }
  let changes: [CheckedChange] = [
    .insert([CheckedItem(5)]), .insert([CheckedItem(1, version: 2)]), .remove([CheckedItem(2)]),
  ]
  for result in await fixture.performAtOnce(changes, holding: \.isRead) { try result.get() }
  try await fixture.load()
  var expected = (0..<5).map { CheckedItem($0) }
  for change in changes { expected.apply(change) }
  try await fixture.expectItems(expected, "after changes while they were loaded")
  try await fixture.expectAgreement("after changes while they were loaded")
}
