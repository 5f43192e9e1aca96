#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

// Faults that only appear after very many calls, or after a pause: rules C1, D2, K1, T1 and W1.

extension CheckDefinition {
  @CheckList static var repetitionChecks: [CheckDefinition] {
    Check(
      .w1, "life.of-one-key", "after each of very many overwrites of one key, a read returns the new value"
    ) { context in
      let engine = try await context.open()
      let (key, kept) = (key("k"), entries(keys(4)))
      let past = Date(timeIntervalSince1970: 1_000_000_000)
      try await engine.write(Array(kept.prefix(2)))
      // A cache may evict one entry because it is never read, and another because it is old.
      try await engine.writeEntries(
        kept.suffix(2).map { StorageEntry(key: $0.key, data: $0.data, createdAt: past, updatedAt: past) })
      // Keys that are written once, between the overwrites: an engine may keep single writes apart until there are
      // many.
      var others: [CacheKey] = []
      for number in context.rounds(quick: 5_000, standard: 70_000, exhaustive: 300_000, of: "overwrites") {
        try await engine.write(data("\(number)"), key: key)
        try expect(
          try await engine.read(key: key), is: data("\(number)"),
          "read(key:) after write \(number + 1) of one key")
        guard number % 4 == 3 else { continue }
        let other = CacheKey(verbatim: "other \(number)")
        try await engine.write(value(for: other), key: other)
        others.append(other)
      }
      try await expectStored(kept + entries(others), in: engine)
      try expect(
        try await engine.keyCount(), is: kept.count + 1 + others.count,
        "keyCount() after \(others.count) keys had been written one by one, between overwrites of another,")
    }
    Check(
      .w1, "life.of-reads",
      "after very many reads and scans, all entries have their last values, including those that were never "
        + "read"
    ) { context in
      let engine = try await context.open()
      var asked = entries(keys(2))
      let others = entries(keys(3, prefix: "left alone "))
      try await engine.write(asked + others)
      // The other methods are called in turn on a second engine, so that this one only serves single reads and scans.
      let lists = try await context.open(context.root.appending(path: "lists", directoryHint: .isDirectory))
      let listed = entries(keys(3))
      try await lists.write(listed)
      for number in context.rounds(quick: 70_000, standard: 200_000, exhaustive: 3_000_000, of: "reads") {
        if number % 5_000 == 4_999 {
          // If the engine's numbers of reads wrap around, the values that an earlier read with the same number returned
          // no longer exist.
          asked = entries(keys(2), version: number)
          try await engine.write(asked)
        }
        if number % 12 == 11 {
          let method = ReadMethod.allCases[number / 12 % ReadMethod.allCases.count]
          try await expectAnswer(to: method, listed, lists, number)
        }
        if number % 3 == 2 {
          let found = try await engine.scan(.all, limit: 2)
          try expect(found, are: asked, "a scan of two entries, read number \(number + 1),")
        } else {
          let (key, value) = asked[number % 2]
          try expect(try await engine.read(key: key), is: value, "read(key:) number \(number + 1)")
        }
      }
      try await expectStored(asked + others, in: engine)
    }
    Check(
      .w1, "life.of-passing-keys",
      "after very many keys were written and removed, exactly the existing ones are found"
    ) { try await writePassingKeys($0) }
    Check(
      .t1, "life.of-transactions", "each of very many transactions takes effect",
      needs: .transactions
    ) { context in
      let engine = try await context.open()
      let counter = key("counter")
      try await engine.write(data("0"), key: counter)
      for number in context.rounds(quick: 5_000, standard: 70_000, exhaustive: 300_000, of: "transactions") {
        let found = try await engine.withTransaction { transaction in
          let found = try transaction.number(counter)
          try transaction.write(data("\(found + 1)"), key: counter)
          return found
        }
        try expect(
          found, is: number,
          "the counter that transaction number \(number + 1) read, each of which adds one,")
      }
    }
    Check(
      .d2, "life.of-removals-of-everything",
      "each time everything is removed, nothing is left, and nothing comes back"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 600, standard: 5_000, exhaustive: 70_000, of: "removals of everything")
      for number in rounds {
        let round = keys(2, prefix: "\(number % 3)-")
        if number % 3 > 0 { try await engine.write(entries(round)) }
        try await engine.removeAllData()
        let what = "after removeAllData() number \(number + 1)"
        try expect(try await engine.keyCount(), is: 0, "keyCount() \(what)")
        try expect(try await engine.read(keys: round), is: [], "read(keys:) \(what)")
      }
    }
    Check(
      .k1, "life.of-errors",
      "after very many errors, invalid calls still throw the right error and valid calls work"
    ) { context in
      let engine = try await context.open()
      let kept = keys(3)
      try await engine.write(entries(kept))
      let rounds = context.rounds(
        quick: 150, standard: 1_500, exhaustive: 40_000, of: "rounds of calls that throw")
      for round in rounds { try await failInEveryWay(engine, round) }
      try await expectStored(entries(kept), absent: [key("kept")], in: engine)
      for method in ChangeMethod.all(context.capabilities) {
        try await method.perform([(key("after"), data("errors"))], in: engine)
        let isThere = try await engine.keyExists(key("after"))
        try expect(isThere, is: !method.removes, "keyExists(_:) after \(method.call) after many errors")
      }
    }
    Check(
      .c1, "life.after-a-pause",
      "after some seconds without a call, every method works, and entries, order, times and subscriptions "
        + "are kept"
    ) { context in
      try await useAfterPause(context, seconds: context.byLevel(quick: 5, standard: 12, exhaustive: 70))
    }
  }
}

/// Fails unless the method finds all of the entries, in any order.
private func expectAnswer(
  to method: ReadMethod, _ all: [(key: CacheKey, data: Data)], _ engine: EngineUnderTest, _ number: Int
) async throws {
  let found = try await method.found(of: all.map(\.key), in: engine)
  let wanted = all.map { method.givesValues ? $0.data : nil }
  if found.hasSameElements(as: wanted) { return }
  throw Violation(
    "\(method.call), read number \(number + 1), found \(describe(found)) of \(all.count) entries",
    rule: method.rule)
}

/// Writes batches of new keys that follow all earlier ones in byte order, and removes the previous batch each time.
/// What an engine keeps of removed keys, such as tombstones, then precedes the entries of every scan.
private func writePassingKeys(_ context: CheckContext) async throws {
  var engine = try await context.open()
  let size = min(500, max(20, try await context.affordableEntries().writes / 40))
  func batch(_ number: Int) -> [(key: CacheKey, data: Data)] {
    entries((number * size..<(number + 1) * size).map { key("passing \(10_000_000 + $0)") })
  }
  var last = batch(0)
  let rounds = context.rounds(
    quick: 20, standard: 210, exhaustive: 2_500, of: "batches of \(size) keys that come and go")
  for number in rounds {
    let new = batch(number)
    try await engine.write(new)
    if number > 0 { try await engine.remove(keys: last.map(\.key)) }
    last = new
    let when = "when \(number * size) keys had come and gone"
    let first = try await engine.scan(.all, limit: 3)
    try expect(first, are: Array(new.prefix(3)), "a scan of three entries \(when)")
    try expect(try await engine.keyCount(), is: size, "keyCount() \(when)")
  }
  let gone = last[0].key == batch(0)[0].key ? [] : batch(0).map(\.key)
  for isReopened in [false, true] {
    if isReopened {
      guard context.capabilities.contains(.persistent) else { return }
      engine = try await context.reopen(engine)
    }
    try await expectStored(last, absent: gone, in: engine)
    try expect(
      try await engine.scan(.all, limit: nil), are: last, "a scan after very many keys had come and gone")
  }
}

/// An engine that is not used for a while.
private struct RestingEngine {
  let engine: EngineUnderTest
  let before: [StorageEntry]
  let subscriber: ChangeSubscriber?

  init(_ context: CheckContext, _ number: Int) async throws {
    engine = try await context.open(
      context.root.appending(path: "engine \(number)", directoryHint: .isDirectory))
    // So that the writes have different times.
    for name in ["k", "b", "c", "a"] {
      try await engine.write(data("v"), key: key(name))
      try await letClockAdvance()
    }
    try await engine.write(data("v"), key: key("b"))
    before = try await engine.readAllEntries()
    subscriber =
      context.capabilities.contains(.changeFeed) ? try await ChangeSubscriber(to: engine, context) : nil
  }

  /// Reads everything, beginning with one of the methods.
  func ask(first: Int) async throws {
    let reads = ReadMethod.allCases
    for step in reads.indices {
      let method = reads[(step + first) % reads.count]
      let found = try await method.found(of: before.map(\.key), in: engine)
      try expect(
        found, is: before.map { _ in method.givesValues ? data("v") : nil },
        "after a pause, the result of \(method.call) for \(before.count) entries")
    }
    let after = try await engine.readAllEntries()
    guard after.map(\.key) == before.map(\.key) else {
      throw Violation(
        "the order of readAllEntries() was \(describe(before.map(\.key))) before a pause and "
          + "\(describe(after.map(\.key))) after it",
        rule: .r6)
    }
    let keepsTimes = zip(after, before).allSatisfy {
      $0.createdAt.isAbout($1.createdAt) && $0.updatedAt.isAbout($1.updatedAt)
    }
    guard keepsTimes else {
      throw Violation("after a pause readAllEntries() had other times than before it", rule: .w2)
    }
  }

  /// Changes an entry by every method, beginning with one of them.
  func change(_ changes: [ChangeMethod], first: Int) async throws {
    for step in changes.indices {
      let method = changes[(step + first) % changes.count]
      try await method.perform([(key("k"), data("after"))], in: engine)
      let expected = method.removes ? nil : data("after")
      try expect(
        try await engine.read(key: key("k")), is: expected, "read(key:) after a pause and \(method.call)")
      // Elements received during the pause cover the first change. The removal of an absent key need not be delivered.
      guard step == 0 || step == 1 && !method.removes else { continue }
      do {
        try await subscriber?.expectCovered([key("k")], "\(method.call) after a pause")
      } catch let violation as Violation {
        throw Violation(violation.description, rule: .x1)
      }
    }
  }
}

/// Leaves several engines unused, since the first call after a pause may restore what the other calls need.
private func useAfterPause(_ context: CheckContext, seconds: Int) async throws {
  let changes = ChangeMethod.all(context.capabilities)
  var engines: [RestingEngine] = []
  for number in 0..<4 { engines.append(try await RestingEngine(context, number)) }
  for _ in 0..<seconds {
    try await Task.sleep(for: .seconds(1))
    context.noteProgress()
  }
  // Each begins with a different method.
  for (number, resting) in engines.enumerated() {
    if number.isMultiple(of: 2) { try await resting.ask(first: number * 5) }
    try await resting.change(changes, first: number * 3)
  }
}

/// Makes every call that takes a key with an invalid one, and transactions whose bodies throw.
private func failInEveryWay(_ engine: EngineUnderTest, _ round: Int) async throws {
  let bad = key(round.isMultiple(of: 2) ? "" : String(repeating: "k", count: 512))
  for (name, call) in callsThatTakeAKey(engine.capabilities) {
    try await expectError(.invalidKey, from: "\(name) in round \(round + 1) of errors") {
      try await call(engine, bad)
    }
  }
  guard engine.capabilities.contains(.transactions) else { return }
  do {
    try await engine.withTransaction { transaction in
      if round % 3 == 1 { try transaction.removeAll() }
      if round % 3 == 2 { _ = try transaction.scan(.all, limit: nil) }
      throw ThrownByBody()
    }
    throw Violation("withTransaction(_:) returned although its body had thrown", rule: .t3)
  } catch let failure as CallFailure {
    guard !(failure.error is ThrownByBody) else { return }
    throw Violation(
      "in round \(round + 1) of bodies that throw \(failure), not the error of the body", rule: .t3)
  }
}
