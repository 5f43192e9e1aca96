#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// The order of entries: rule R6.

extension CheckDefinition {
  @CheckList static var orderChecks: [CheckDefinition] {
    Check(.r6, "order.of-first-writes", "entries are in the order in which their keys were first written") {
      context in
      let engine = try await context.open()
      let order = try await writeShuffled(in: engine)
      try await expectOrder(order, in: engine)
    }
    Check(
      .r6, "order.of-some-entries",
      "readEntries(keys:) returns the existing entries, each once, with the same contents and in the same "
        + "order as readAllEntries()"
    ) { context in
      let engine = try await context.open()
      let order = try await writeShuffled(in: engine)
      let all = try await engine.readAllEntries()
      let asked = order.sorted().enumerated().filter { $0.offset % 3 != 1 }.map(\.element)
      let some = try await engine.readEntries(keys: asked + [CacheKey(verbatim: "absent")] + asked.prefix(2))
      let expected = all.filter { asked.contains($0.key) }
      try expect(
        some.count == expected.count && Set(some) == Set(expected),
        "readEntries(keys:) returned the keys \(describe(some.map(\.key))) instead of "
          + "\(describe(expected.map(\.key))), or other values or times"
      )
      var places: [CacheKey: Int] = [:]
      for (place, entry) in expected.enumerated() { places[entry.key] = place }
      for (earlier, later) in zip(some, some.dropFirst()) where earlier.createdAt != later.createdAt {
        try expect(
          places[earlier.key, default: 0] < places[later.key, default: 0],
          "readEntries(keys:) returned \(earlier.key) before \(later.key), which comes first in "
            + "readAllEntries()")
      }
      let none = try await engine.readEntries(keys: [])
      try expect(none.isEmpty, "readEntries(keys:) of no keys returned \(none.count) entries")
    }
    Check(.r6, "order.survives-overwrites", "an overwrite, by any method, keeps the position of an entry") {
      context in
      let engine = try await context.open()
      let order = try await writeShuffled(in: engine)
      try await letClockAdvance()
      try await engine.write(data("2"), key: order[7])
      try await engine.write([(order[5], data("2")), (order[0], data("2"))])
      try await engine.apply([.write(data("2"), key: order[11]), .write(data("2"), key: order[1])])
      try await expectOrder(order, in: engine)
    }
    Check(.r6, "order.removal-ends-it", "a key that is removed and written again moves to the end") {
      context in
      let engine = try await context.open()
      var order = try await writeShuffled(in: engine)
      for (step, index) in [0, 3, 8].enumerated() {
        try await letClockAdvance()
        let key = order.remove(at: index)
        order.append(key)
        if step == 1 {
          try await engine.apply([.remove(key: key), .write(data("again"), key: key)])
        } else {
          try await engine.remove(key: key)
          try await engine.write(data("again"), key: key)
        }
        try await expectOrder(order, in: engine)
      }
    }
    Check(.r6, "order.within-a-batch", "the entries of one batch are in the order of the batch") { context in
      let engine = try await context.open()
      let sorted = keys(60)
      let first = (0..<40).map { sorted[$0 * 17 % 40] }
      try await engine.write(entries(first))
      try await letClockAdvance()
      let second = (0..<20).map { sorted[40 + $0 * 13 % 20] }
      try await engine.apply(second.map { .write(value(for: $0), key: $0) })
      try await expectOrder(first + second, in: engine)
    }
    Check(
      .r6, "order.of-repeats",
      "an entry that a batch writes twice has the position of its first write in that batch"
    ) { context in
      let engine = try await context.open()
      let (a, b, c, d) = (key("a"), key("b"), key("c"), key("d"))
      try await engine.write([(c, data("1")), (a, data("1")), (c, data("2")), (b, data("1")), (a, data("2"))])
      try await expectOrder([c, a, b], in: engine)
      try await letClockAdvance()
      // A removal before the write makes this a new entry.
      try await engine.apply([
        .write(data("1"), key: d), .write(data("2"), key: b), .remove(key: c), .write(data("3"), key: c),
      ])
      try await expectOrder([a, b, d, c], in: engine)
    }
    Check(
      .r6, "order.after-removing-everything",
      "entries written after everything was removed are in the order of their first writes since"
    ) { context in
      let engine = try await context.open()
      let order = try await writeShuffled(in: engine)
      for round in 0..<2 {
        if round == 0 { try await engine.removeAllData() } else { try await engine.apply([.removeAll]) }
        let next = Array(order.reversed().dropFirst(round * 3))
        for key in next {
          try await engine.write(value(for: key), key: key)
          try await letClockTick()
        }
        try await expectOrder(next, in: engine)
      }
      // In the same batch.
      let replacing = order.map { StorageOperation.write(data("new"), key: $0) }
      try await engine.apply([.removeAll] + replacing)
      try await expectOrder(order, in: engine)
    }
    Check(
      .r6, "order.of-concurrent-writes",
      "while several tasks write new keys (through two engines, if the place can be shared), each "
        + "readAllEntries() begins with the entries of the previous one",
      needs: .snapshotReads
    ) { try await checkGrowingOrder($0) }
    Check(.r6, "order.survives-reopening", "the order is the same after reopening", needs: .persistent) {
      context in
      var engine = try await context.open()
      var order = try await writeShuffled(in: engine)
      let batch = (0..<20).map { key("batch-\($0 * 7 % 20)") }
      try await engine.write(entries(batch))
      order += batch
      engine = try await context.reopen(engine)
      try await expectOrder(order, in: engine)
      // Keys that are first written after reopening follow the existing ones.
      try await letClockAdvance()
      try await engine.write(data("2"), key: order[2])
      try await engine.write(data("v"), key: key("000 first in byte order, last in time"))
      order.append(key("000 first in byte order, last in time"))
      engine = try await context.reopen(engine)
      try await expectOrder(order, in: engine)
      // In a log that only keeps the last change of a key, a removal and a write may look like an overwrite.
      var replaced = [order[1]]
      try await letClockAdvance()
      try await wayOfReplacing.write(engine, entries(replaced, version: 3))
      if context.capabilities.contains(.transactions) {
        let next = order[3]
        replaced.append(next)
        try await letClockAdvance()
        try await engine.withTransaction { transaction in
          try transaction.remove(key: next)
          try transaction.write(data("again"), key: next)
        }
      }
      order = order.filter { !replaced.contains($0) } + replaced
      engine = try await context.reopen(engine)
      try await expectOrder(order, in: engine)
      // Without close(), an engine may not have saved which positions it has assigned.
      for number in 0..<2 {
        try await letClockAdvance()
        order.append(key("00\(9 - number) written before a release"))
        try await engine.write(data("v"), key: order[order.count - 1])
        engine.release()
        engine = try await context.open()
        try expectPresent(order, among: try await engine.allKeys(), "a release without close()")
        try await expectOrder(order, in: engine)
      }
    }
  }
}

/// Writes keys in an order that is neither ascending nor descending. Returns that order.
private func writeShuffled(in engine: EngineUnderTest) async throws -> [CacheKey] {
  let sorted = keys(13)
  let order = (0..<13).map { sorted[$0 * 5 % 13] }
  for key in order {
    try await engine.write(value(for: key), key: key)
    try await letClockTick()
  }
  return order
}

/// Waits until the clock has advanced by more than 4 ms, twice the tolerance of rule W2. Then engines that order by
/// time alone can distinguish two writes, even if they store times in steps of 4 ms.
func letClockTick() async throws {
  let now = Date()
  while Date().timeIntervalSince(now) < 0.004_1, Date() >= now {
    try await Task.sleep(for: .microseconds(300))
  }
}

/// Fails unless the entries are in this order.
///
/// An engine that implements a batch as single writes cannot distinguish two of them that happened within one tick of
/// the clock. So neighbors with equal times may be swapped, unless nearly all entries have the same time. Without atomic
/// batches an engine may use the default readAllEntries(), which only sorts by times, and a whole batch may have the same
/// time.
func expectOrder(_ order: [CacheKey], in engine: EngineUnderTest) async throws {
  let entries = try await engine.readAllEntries()
  let maySwap =
    Set(entries.map(\.createdAt)).count > 3 || !engine.capabilities.contains(.atomicBatches)
  var rank: [CacheKey: Int] = [:]
  for (index, key) in order.enumerated() { rank[key] = index }
  try expect(Set(entries.map(\.key)) == Set(order), "readAllEntries() returned other keys than those written")
  try expect(entries.count, is: order.count, "the number of entries of readAllEntries()")
  for (earlier, later) in zip(entries, entries.dropFirst()) {
    if rank[earlier.key, default: 0] < rank[later.key, default: 0] { continue }
    if maySwap, earlier.createdAt == later.createdAt { continue }
    throw Violation(
      "readAllEntries() returned \(earlier.key) before \(later.key), which was written first; the keys were "
        + "\(describe(entries.map(\.key)))")
  }
}

/// Fails by rule W6 unless all keys have been kept: another rule is about their order.
func expectPresent(_ keys: [CacheKey], among found: [CacheKey], _ what: String) throws {
  let lost = Set(keys).subtracting(found)
  if lost.isEmpty { return }
  throw Violation("after \(what), \(describe(lost.inByteOrder())) were missing", rule: .w6)
}

/// Has tasks write new keys, and compares each list of all entries with the previous list of the same reader.
///
/// An entry whose position or time was assigned before its commit would appear before entries that others have already
/// read.
private func checkGrowingOrder(_ context: CheckContext) async throws {
  let engines = try await context.openTwiceIfPossible()
  let (writerCount, readerCount) = (4, 4)
  let rounds = context.rounds(
    quick: 240, standard: 1_000, exhaustive: 10_000, of: "keys written beside readers")
  let methods = ChangeMethod.thatDate.filter { context.capabilities.isSuperset(of: $0.needs) }
  let lists = MutexProtected([[StorageEntry]](repeating: [], count: readerCount))
  try await whileRunning(
    {
      try await gather(0..<writerCount) { task in
        let engine = engines[task % engines.count]
        for number in rounds.share(of: task, among: writerCount) {
          let method = methods[(number / writerCount + task) % methods.count]
          try await method.performAmongMany([(key("\(number)"), data("v"))], in: engine)
          // Without this, an engine that never suspends would finish before a reader has read twice.
          await Task.yield()
        }
      }
    }, readerCount: readerCount
  ) { reader in
    let list = try await engines[reader % engines.count].readAllEntries()
    try expect(list, continues: lists.withLock { $0[reader] })
    lists.withLock { $0[reader] = list }
  }
}

/// Fails unless the list begins with the earlier one. Neighbors with equal times may be swapped: see
/// ``expectOrder(_:in:)``.
private func expect(_ list: [StorageEntry], continues earlier: [StorageEntry]) throws {
  var places: [CacheKey: Int] = [:]
  for (place, entry) in earlier.enumerated() { places[entry.key] = place }
  for (first, second) in zip(list, list.dropFirst()) where first.createdAt != second.createdAt {
    guard let place = places[second.key], places[first.key, default: .max] > place else { continue }
    let before = places[first.key] == nil ? "without the first of them" : "in the opposite order"
    throw Violation(
      "readAllEntries() had \(first.key) before \(second.key), and an earlier call of the same task \(before)"
    )
  }
}
