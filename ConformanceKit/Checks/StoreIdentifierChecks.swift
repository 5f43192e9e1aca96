import StockroomCore

// The identifiers of items: rule S8.

extension CheckDefinition {
  @CheckList static var storeIdentifierChecks: [CheckDefinition] {
    Check(
      .s8, "store.any-identifier",
      "identifiers of any length and content are distinguished byte for byte, and their items can be "
        + "replaced, removed and loaded by a new store"
    ) { try await checkIdentifiers($0) }
    Check(
      .s8, "store.identifier-like-a-key",
      "an item whose identifier is the key of another item's entry does not affect the other"
    ) { try await checkIdentifierLikeAKey($0) }
  }
}

private let identifiers: [String] = {
  func long(_ text: String, _ count: Int) -> String { String(repeating: text, count: count) }
  let accents = ["é", "e\u{301}"]
  return [
    "", " ", "\0", "a", "A", "a ", "a\0", "a\0b", "../x", "/", "..", "%2F", "👩‍👩‍👧‍👦", long("a", 510),
    long("a", 511), long("a", 512), long("a", 100_000), long("a", 600) + "b", long("a", 600) + "c",
    "b" + long("a", 600), "c" + long("a", 600), long("🗄", 128), long("a", 509) + "é",
  ] + accents + accents.map { long("a", 600) + $0 } + accents.map { $0 + long("a", 600) }
}()

@MainActor private func checkIdentifiers(_ context: CheckContext) async throws {
  var fixture = try await context.openStore()
  var expected: [CheckedItem] = []
  // Half of them one by one, the others as one batch.
  let items = identifiers.map { CheckedItem($0) }
  for change in items.prefix(12).map({ CheckedChange.insert([$0]) }) + [.insert(Array(items.dropFirst(12)))] {
    try await fixture.perform(change)
    expected.apply(change)
    try await letClockTick()
  }
  try expect(expected.count, is: identifiers.count, "the number of different identifiers")
  try await fixture.expectItems(expected, "with identifiers of all kinds")
  fixture = try await fixture.expectAgreement("with identifiers of all kinds")

  expected = fixture.store.items.map { CheckedItem($0.id, version: 2) }
  try await fixture.perform(.insert(expected))
  try await fixture.expectItems(expected, "after all were replaced")
  if context.capabilities.contains(.transactions) {
    for item in expected {
      try await fixture.update(item, adding: 1)
    }
    expected = expected.map { CheckedItem($0.id, version: 3) }
    try await fixture.expectItems(expected, "after all were updated")
  }
  for (number, item) in items.enumerated() where number % 2 == 0 {
    try await fixture.remove(item)
    expected.apply(.remove([item]))
    try expectSame(fixture.store.items, expected, "the items after remove of \(item)")
  }
  fixture = try await fixture.expectAgreement("after half of them were removed")
  try await fixture.perform(.remove(items))
  try await fixture.expectItems([], "after all were removed")
}

@MainActor private func checkIdentifierLikeAKey(_ context: CheckContext) async throws {
  let fixture = try await context.openStore()
  let long = CheckedItem(String(repeating: "long ", count: 200))
  try await fixture.insert(long)
  let keys = try await fixture.engineUnderTest.allKeys()
  try expect(keys.count, is: 1, "the number of entries of one item")
  for key in keys {
    let other = CheckedItem(key.value)
    // The store may refuse the item.
    do { try await fixture.insert(other) } catch {}
    try await letClockTick()
    let items = fixture.store.items
    try expect(items.contains(long), "\(long) was gone after an insertion of \(other)")
    try await fixture.expectItems(items, "after insert of \(other)")
    do { try await fixture.remove(other) } catch {}
    try await fixture.expectItems([long], "after remove of \(other)")
  }
  try await fixture.expectAgreement("after insertion and removal of an item whose identifier is a key")
}
