#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// How a transaction affects times and the order of entries, its own and those of another engine: rule T2.

extension CheckDefinition {
  @CheckList static var transactionTimeChecks: [CheckDefinition] {
    Check(
      .t2, "transactions.times-and-order",
      "an overwrite in a transaction keeps createdAt and the entry's position, and a write after a removal "
        + "renews both",
      needs: .transactions
    ) { try await checkTimes($0) }
    Check(
      .t2, "transactions.own-entries-of-others",
      "a body reads the entries that it imports with writeEntry(_:), which are there afterwards, in the "
        + "given order",
      needs: .transactions
    ) { try await checkWrittenEntries($0) }
  }
}

private func checkTimes(_ context: CheckContext) async throws {
  try await checkTimesOfChanges(context)
  let engine = try await context.open(context.root.appending(path: "emptied", directoryHint: .isDirectory))
  try await engine.write(entries(keys(3)))
  try await letClockAdvance()
  let window = try await window {
    try await engine.withTransaction { transaction in
      try transaction.removeAll()
      for key in keys(2).reversed() { try transaction.write(data("new"), key: key) }
    }
  }
  let found = try await engine.readAllEntries()
  try expectOrder(
    of: found, is: keys(2).reversed(), context,
    "the keys of readAllEntries() after removeAll() and two writes in a body")
  for entry in found {
    try expect(
      window.contains(entry.createdAt) && window.contains(entry.updatedAt),
      "createdAt and updatedAt of \(entry.key), which a body wrote after removeAll(), were \(describe(entry.createdAt)) and "
        + "\(describe(entry.updatedAt)), not of the transaction")
  }
}

private func checkTimesOfChanges(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let names = ["renewed", "overwritten", "untouched", "removed", "written as it was", "renewed as it was"]
  try await engine.apply(names.map { .write(data("old"), key: key($0)) })
  let old = Dictionary(try await engine.readAllEntries().map { ($0.key, $0) }) { first, _ in first }
  try await letClockAdvance()
  let window = try await window {
    try await engine.withTransaction { transaction in
      try transaction.write(data("first"), key: key("new, z"))
      try transaction.remove(key: key("renewed"))
      try transaction.write(data("new"), key: key("overwritten"))
      try transaction.write(data("new"), key: key("renewed"))
      try transaction.remove(key: key("removed"))
      try transaction.write(data("second"), key: key("new, a"))
      try transaction.write(data("again"), key: key("new, z"))
      // An entry that the body writes and then removes leaves nothing.
      try transaction.write(data("passing"), key: key("passing"))
      try transaction.remove(key: key("passing"))
      // An engine may compare the entries before and after the body. Writing the same value is a write.
      try transaction.write(data("old"), key: key("written as it was"))
      try transaction.remove(key: key("renewed as it was"))
      try transaction.write(data("old"), key: key("renewed as it was"))
    }
  }
  let found = try await engine.readAllEntries()
  let order = [
    "overwritten", "untouched", "written as it was", "new, z", "renewed", "new, a", "renewed as it was",
  ].map { key($0) }
  try expectOrder(of: found, is: order, context, "the order of readAllEntries() after a transaction")
  for entry in found {
    let before = old[entry.key]
    if [key("renewed"), key("renewed as it was")].contains(entry.key) || before == nil {
      try expect(
        window.contains(entry.createdAt),
        "createdAt of \(entry.key) was \(describe(entry.createdAt)), not of the transaction")
    } else {
      try expect(entry.createdAt, is: before?.createdAt ?? .distantPast, "createdAt of \(entry.key)")
    }
    if entry.key == key("untouched") {
      try expect(entry.updatedAt, is: before?.updatedAt ?? .distantPast, "updatedAt of \(entry.key)")
    } else {
      try expect(
        window.contains(entry.updatedAt),
        "updatedAt of \(entry.key) was \(describe(entry.updatedAt)), not of the transaction")
    }
  }
}

/// Fails unless the entries are in this order. Without atomic batches an engine may use the default readAllEntries(),
/// which only sorts by times, and all writes of a transaction may have the same time.
private func expectOrder(
  of found: [StorageEntry], is order: [CacheKey], _ context: CheckContext, _ what: String
) throws {
  if context.capabilities.contains(.atomicBatches) {
    return try expect(found.map(\.key), is: order, what)
  }
  try expect(found.map(\.key), areInAnyOrder: order, what)
  try ConformanceKit.expectOrder(of: found, order)
}

private func checkWrittenEntries(_ context: CheckContext) async throws {
  for readsBetween in [true, false] {
    let place = context.root.appending(path: "reads \(readsBetween)", directoryHint: .isDirectory)
    try await writeEntries(in: try await context.open(place), readsBetween: readsBetween)
  }
  guard context.capabilities.contains(.preservesTimestamps) else { return }
  let place = context.root.appending(path: "written over", directoryHint: .isDirectory)
  try await writeOverEntries(in: try await context.open(place))
}

/// Writes over entries that the same body has imported, and imports an entry over one that it has written.
private func writeOverEntries(in engine: EngineUnderTest) async throws {
  let past = Date(timeIntervalSince1970: 1_400_000_000)
  let imported = ["overwritten", "renewed", "imported last"].map {
    StorageEntry(key: key($0), data: data("imported"), createdAt: past, updatedAt: past)
  }
  let window = try await window {
    try await engine.withTransaction { transaction in
      try transaction.write(data("v"), key: imported[2].key)
      for entry in imported { try transaction.writeEntry(entry) }
      try transaction.write(data("v"), key: imported[0].key)
      try transaction.remove(key: imported[1].key)
      try transaction.write(data("v"), key: imported[1].key)
    }
  }
  for (number, entry) in imported.enumerated() {
    let times = (try await engine.createdAt(key: entry.key), try await engine.updatedAt(key: entry.key))
    guard case (let created?, let updated?) = times else {
      throw Violation("the times of \(entry.key) were nil, which a body had written and imported", rule: .w2)
    }
    // Whether createdAt and updatedAt are those of the transaction.
    let (isCreated, isUpdated) = (number == 1, number < 2)
    guard isCreated ? window.contains(created) : isSame(created, past),
      isUpdated ? window.contains(updated) : isSame(updated, past)
    else {
      throw Violation(
        "createdAt and updatedAt of the entry \(entry.key), which a body had written and imported, were "
          + describe([created, updated]), rule: .w2)
    }
  }
}

/// Imports entries in a body, some of them empty, each older than the one before.
///
/// - Parameter readsBetween: Whether the body reads each of them at once. An engine may defer writes that are not read.
private func writeEntries(in engine: EngineUnderTest, readsBetween: Bool) async throws {
  try await engine.write(data("old"), key: key("old"))
  let given = ["d", "b", "old", "c", "a"].enumerated().map { number, name in
    let past = Date(timeIntervalSince1970: 1_500_000_000 - Double(number) * 1_000)
    return StorageEntry(
      key: key(name), data: number.isMultiple(of: 2) ? Data() : data(name), createdAt: past, updatedAt: past)
  }
  let expected = given.map { (key: $0.key, data: $0.data) }
  try await engine.withTransaction { transaction in
    for entry in given {
      try transaction.writeEntry(entry)
      guard readsBetween else { continue }
      try expect(
        try transaction.read(key: entry.key), is: entry.data,
        "read(key:) of \(entry.key) after writeEntry(_:)")
      try expect(
        try transaction.keyExists(entry.key), "keyExists(_:) of \(entry.key) was false after writeEntry(_:)")
    }
    guard readsBetween else { return }
    try expect(try transaction.keyCount(), is: given.count, "keyCount() after writeEntry(_:) of new keys")
    try expect(
      try transaction.scan(.all, limit: nil), are: expected.sorted { $0.key < $1.key },
      "scan(.all) after writeEntry(_:)")
  }
  try await expectStored(expected, in: engine)
  guard engine.capabilities.contains(.preservesTimestamps) else { return }
  do {
    try await expectTimes(given, in: engine)
  } catch let violation as Violation {
    throw Violation("after writeEntry(_:), \(violation)", rule: .w2)
  }
  let order = try await engine.readAllEntries().map(\.key.value)
  guard order == ["old", "d", "b", "c", "a"] else {
    throw Violation(
      "the keys of readAllEntries() after writeEntry(_:) of entries each older than the one before were \(describe(order))",
      rule: .r6)
  }
}
