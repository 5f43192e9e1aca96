import StockroomCore

// Chained calls to a store: rule S3.

extension CheckDefinition {
  @CheckList static var storeChainChecks: [CheckDefinition] {
    Check(
      .s3, "store.chain-is-one-batch",
      "running a chain makes one call to the engine and one observable change of the items"
    ) { try await checkOneBatch($0) }
    Check(
      .s3, "store.chain-needs-run",
      "a chain does nothing until it is run, and a second run does nothing"
    ) { try await checkRun($0) }
    Check(
      .s3, "store.chain-is-all-or-nothing",
      "a chain that fails at any step leaves items and engine as they were, and can be run again"
    ) { try await checkAllOrNothing($0) }
  }
}

private let initialItems = (0..<6).map { CheckedItem($0) }

private let chains: [[CheckedChange]] = [
  [
    .insert([CheckedItem(10)]), .remove([CheckedItem(0)]),
    .insert([CheckedItem(11), CheckedItem(2, version: 2)]),
  ],
  [.remove([CheckedItem(1), CheckedItem(3)]), .insert([CheckedItem(3, version: 2)])],
  [.insert([CheckedItem(12)]), .insert([CheckedItem(12, version: 2), CheckedItem(13)])],
  [.removeAll, .insert([CheckedItem(20), CheckedItem(21)]), .remove([CheckedItem(20)])],
]

@MainActor private func checkOneBatch(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await fixture.perform(.insert(initialItems))
  var expected = initialItems
  for chain in chains {
    let changes = ChangeCounter(fixture.store)
    fixture.engine.resetCalls()
    try await fixture.run(chain)
    let writes = fixture.engine.calls.filter(\.isWrite)
    try expect(
      writes.count == 1, "a chain of \(chain) made \(writes.count) changes to the engine: \(describe(writes))"
    )
    try expect(
      changes.count == 1,
      "observers saw the items change \(changes.count) times during a chain of \(chain)")
    for change in chain { expected.apply(change) }
    try await fixture.expectItems(expected, "after a chain of \(chain)")
  }
}

@MainActor private func checkRun(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await fixture.perform(.insert(initialItems))
  let run = try await fixture.store.chain([.removeAll, .insert([CheckedItem(10)])])
  await letOthersRun()
  // If the chain had already been run, it would have taken effect before this later call returned.
  try await fixture.insert(CheckedItem(11))
  try await fixture.expectItems(initialItems + [CheckedItem(11)], "with a chain that was not run")

  try await run()
  try await fixture.expectItems([CheckedItem(10)], "after the chain was run")
  try await fixture.insert(CheckedItem(12))
  fixture.engine.resetCalls()
  let changes = ChangeCounter(fixture.store)
  try await run()
  await letOthersRun()
  try expect(
    fixture.engine.calls.filter(\.isWrite).isEmpty && changes.count == 0,
    "a second run of a chain called the engine or changed the items")
  try await fixture.expectItems([CheckedItem(10), CheckedItem(12)], "after the chain was run again")
  try await runTwiceAtOnce(fixture)
}

/// Runs a chain for the second time while the first run is under way.
@MainActor private func runTwiceAtOnce(_ fixture: StoreFixture) async throws {
  let run = try await fixture.store.chain([.removeAll, .insert([CheckedItem(13)])])
  fixture.engine.resetCalls()
  fixture.engine.hold(where: \.isWrite)
  let started = Counter()
  let runs = (0..<2).map { _ in
    Task {
      started.count += 1
      try await run()
    }
  }
  while started.count < runs.count { await Task.yield() }
  await letOthersRun()
  fixture.engine.release()
  for task in runs { try await task.value }
  let count = fixture.engine.calls.count(where: \.isWrite)
  try expect(count == 1, "two runs of a chain at the same time made \(count) changes to the engine")
  try await fixture.expectItems([CheckedItem(13)], "after two runs of a chain at the same time")
}

@MainActor private func checkAllOrNothing(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  try await fixture.perform(.insert(initialItems))
  var expected = initialItems
  for chain in chains {
    let run = try await fixture.store.chain(chain)
    var hasRun = false
    // The second and third call are never made if the whole chain is one call.
    for failing in [1, 2, 3] where !hasRun {
      fixture.engine.failCall(failing, where: \.isWrite)
      do {
        try await run()
        hasRun = true
      } catch {
        try await fixture.expectItems(expected, "after a chain whose call number \(failing) had failed")
      }
      fixture.engine.clearFaults()
    }
    if !hasRun { try await run() }
    for change in chain { expected.apply(change) }
    try await fixture.expectItems(expected, "after a chain of \(chain)")
  }
}
