#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Entries that cannot be decoded: rule S6.

extension CheckDefinition {
  @CheckList static var storeDecodingChecks: [CheckDefinition] {
    Check(
      .s6, "store.undecodable-entries",
      "entries that cannot be decoded hide no item, are reported with their keys, and stay unchanged when "
        + "other items change"
    ) { try await checkUndecodable($0) }
    Check(
      .s6, "store.replaces-undecodable-entry",
      "an item that replaces an entry that cannot be decoded works like any other"
    ) { try await checkReplacement($0) }
  }
}

/// A store with items, and the keys of the entries that hold them.
@MainActor private func filledStore(_ context: CheckContext) async throws -> (StoreFixture, [CacheKey]) {
  let fixture = try await context.openStore()
  var keys: [CacheKey] = []
  for number in 0..<5 {
    let before = Set(try await fixture.engineUnderTest.allKeys())
    try await fixture.insert(CheckedItem(number))
    keys += try await fixture.engineUnderTest.allKeys().filter { !before.contains($0) }
    try await letClockTick()
  }
  try expect(keys.count, is: 5, "the number of entries of 5 items")
  return (fixture, keys)
}

@MainActor private func checkUndecodable(_ context: CheckContext) async throws {
  var (fixture, itemKeys) = try await filledStore(context)
  let half =
    try await fixture.engineUnderTest.read(key: itemKeys[3]).map { Data($0.prefix($0.count / 2)) } ?? Data()
  let bad: [(key: CacheKey, data: Data)] = [
    (itemKeys[1], data("not JSON")), (itemKeys[3], half),
    (key("somebody else's"), data(#"{"other": [1, 2]}"#)),
    (key("empty"), Data()), (key("bytes"), Data([0xFF, 0x00, 0xC3])),
  ]
  for entry in bad { try await fixture.engineUnderTest.write(entry.data, key: entry.key) }
  fixture = try await fixture.restarted()

  var expected = [0, 2, 4].map { CheckedItem($0) }
  func check(_ when: String) async throws {
    try await fixture.expectItems(expected, when)
    try expect(
      fixture.store.unreadableKeys.sorted(), is: bad.map(\.key).sorted(),
      "the list of unreadable entries \(when)")
    for entry in bad {
      let value = try await fixture.engineUnderTest.read(key: entry.key)
      try expect(value, is: entry.data, "\(when) read(key:) of \(entry.key), which cannot be decoded,")
    }
  }
  try await check("beside entries that cannot be decoded")
  let changes: [CheckedChange] = [
    .insert([CheckedItem(10)]), .insert([CheckedItem(2, version: 2), CheckedItem(11)]),
    .remove([CheckedItem(0)]),
    .remove([CheckedItem(4), CheckedItem(12)]),
  ]
  for change in changes {
    try await fixture.perform(change)
    expected.apply(change)
    try await check("after \(change), beside entries that cannot be decoded,")
    try await letClockTick()
  }
  try await fixture.run([.insert([CheckedItem(13)]), .remove([CheckedItem(10)])])
  expected.apply(.insert([CheckedItem(13)]))
  expected.apply(.remove([CheckedItem(10)]))
  try await check("after a chain, beside entries that cannot be decoded,")
  fixture = try await fixture.restarted()
  try await check("of a new store beside entries that cannot be decoded")
}

@MainActor private func checkReplacement(_ context: CheckContext) async throws {
  var (fixture, itemKeys) = try await filledStore(context)
  try await fixture.engineUnderTest.write(data("not JSON"), key: itemKeys[1])
  try await fixture.engineUnderTest.write(data("{}"), key: itemKeys[3])
  fixture = try await fixture.restarted()
  let item = CheckedItem(1, version: 2)
  try await fixture.insert(item)
  try expect(fixture.store.items.count { $0 == item }, is: 1, "the number of items with the identifier")
  try expect(
    fixture.store.unreadableKeys, is: [itemKeys[3]],
    "the list of unreadable entries, of which one had been replaced,")
  let fresh = try await fixture.expectAgreement("after an entry that could not be decoded was replaced")
  try expect(fresh.store.unreadableKeys, is: [itemKeys[3]], "the list of unreadable entries of a new store")
  try expectSame(fresh.store.items, fixture.store.items, "the items of a new store")
}
