#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// The first call of any kind after an engine was opened.

/// Opens a place repeatedly, each time with a different method as the first call: an engine that loads its entries
/// lazily may forget to do so in one of its methods.
///
/// - Throws: ``Violation`` of rule W6 for lost entries, and otherwise of the rule of the method.
func checkFirstCalls(_ context: CheckContext) async throws {
  let place = context.root.appending(path: "first calls", directoryHint: .isDirectory)
  var engine = try await context.open(place)
  var expected = ExpectedAnswers()
  let stored: [StorageOperation] = keys(6).map { .write(value(for: $0), key: $0) }
  let removed = StorageOperation.remove(key: keys(6)[5])
  for operations in [stored, [removed]] {
    try await engine.apply(operations)
    expected.apply(operations)
  }
  for method in ExpectedAnswers.methods(withTransactions: context.capabilities.contains(.transactions)) {
    engine = try await context.reopen(engine, at: place)
    do {
      try await expected.ask(method, engine)
    } catch let violation as Violation {
      // If read(key:) does not find them either, entries are lost, and the method is not at fault.
      try await expected.ask(.read, engine)
      let rule: ContractRule = method.map { $0 == .read ? .w6 : $0.rule } ?? .t1
      throw Violation("in the first call after opening, \(violation)", rule: rule)
    }
  }
  for (number, (method, writes)) in firstChanges(context.capabilities).enumerated() {
    let before = try await engine.readAllEntries()
    engine = try await context.reopen(engine, at: place)
    if !method.removes { try await letClockAdvance() }
    let operations = writes(number)
    try await method.perform(operations, in: engine)
    expected.apply(operations)
    do {
      try await expectFirstChange(method, operations, expected, since: before, in: engine)
    } catch let violation as Violation {
      throw Violation(
        "after \(method.call) as the first call after opening, \(violation)", rule: violation.rule)
    }
  }
  try await engine.apply(stored)
  expected.apply(stored)
  // Sessions in which nothing may be loaded.
  for session in 0..<3 {
    engine = try await context.reopen(engine, at: place)
    if session == 2 { try await engine.verify() }
    if session > 0 { try await context.close(engine) } else { engine.release() }
    engine = try await context.open(place)
    try await expected.ask(.read, engine)
    context.noteProgress()
  }
}

/// The entries that each method changes: existing ones, new ones whose keys precede all others, or both.
private func firstChanges(
  _ capabilities: EngineCapabilities
) -> [(method: ChangeMethod, operations: (_ number: Int) -> [StorageOperation])] {
  let keys = keys(5)
  func overwrite(_ number: Int) -> [StorageOperation] { [.write(data("new \(number)"), key: keys[1])] }
  func insert(_ number: Int) -> [StorageOperation] { [.write(data("new"), key: key("a \(9 - number)"))] }
  func both(_ number: Int) -> [StorageOperation] { overwrite(number) + insert(number) }
  var changes: [(method: ChangeMethod, operations: (_ number: Int) -> [StorageOperation])] = [
    (.write, overwrite), (.write, insert), (.writeMany, both), (.writeEntries, both), (.apply, both),
  ]
  if capabilities.contains(.transactions) { changes.append((.transaction, both)) }
  changes.append((.remove, { _ in [.remove(key: keys[2])] }))
  changes.append((.removeMany, { _ in [.remove(key: keys[0]), .remove(key: keys[3])] }))
  changes.append((.removeAll, { _ in [.removeAll] }))
  return changes
}

/// Fails unless exactly this change has been made. Counts, times and the order must otherwise be the same.
private func expectFirstChange(
  _ method: ChangeMethod, _ operations: [StorageOperation], _ expected: ExpectedAnswers,
  since before: [StorageEntry], in engine: EngineUnderTest
) async throws {
  do {
    try await expected.ask(.read, engine)
  } catch let violation as Violation {
    throw Violation(violation.description, rule: method == .removeAll ? .d2 : .w1)
  }
  do {
    try await expected.ask(.keyCount, engine)
  } catch let violation as Violation {
    throw Violation(violation.description, rule: .l2)
  }
  let after = try await engine.readAllEntries()
  var earlier: [CacheKey: (place: Int, entry: StorageEntry)] = [:]
  for (place, entry) in before.enumerated() { earlier[entry.key] = (place, entry) }
  let written = Set(operations.compactMap(\.key))
  for entry in after {
    guard let old = earlier[entry.key]?.entry else { continue }
    // An import also sets times.
    let isDated = method == .writeEntries && written.contains(entry.key)
    let isSame =
      (isDated || entry.createdAt.isAbout(old.createdAt))
      && (written.contains(entry.key) || entry.updatedAt.isAbout(old.updatedAt))
    if isSame { continue }
    throw Violation(
      "the times of \(entry.key) were \(describe([entry.createdAt, entry.updatedAt])), and before it "
        + describe([old.createdAt, old.updatedAt]), rule: .w2)
  }
  // Entries of one batch may have the same time, and then no defined order.
  for (one, other) in zip(after, after.dropFirst()) where one.createdAt != other.createdAt {
    let places = (earlier[one.key]?.place ?? .max, earlier[other.key]?.place ?? .max)
    if places.0 <= places.1 { continue }
    throw Violation(
      "readAllEntries() returned \(one.key) before \(other.key), which was written first", rule: .r6)
  }
}
