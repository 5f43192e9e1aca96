#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// What verify() must not do: report corruption where there is none, change anything, or block others. CorruptionChecks
// covers that it finds corruption.

extension CheckDefinition {
  @CheckList static var verificationChecks: [CheckDefinition] {
    Check(
      .f2, "verification.of-what-is-whole",
      "verify() of a correct place with any keys and values does not throw, and changes nothing, neither what is "
        + "there nor what becomes of later writes"
    ) { context in
      let isPersistent = context.capabilities.contains(.persistent)
      var engine = try await context.open()
      try await engine.verify()
      var ways = waysOfWriting + [wayOfImporting]
      if context.capabilities.contains(.transactions) { ways.append(wayOfTransactions) }
      for (number, way) in ways.enumerated() {
        let some = AdversarialKeys.all.enumerated().filter { $0.offset % 5 == number % 5 }.map(\.element)
        let sizes = [0, 1, 100, 4_096, 70_000]
        try await way.write(
          engine, some.enumerated().map { ($1, noise(sizes[$0 % sizes.count], seed: UInt64($0))) })
        let written = try await engine.readAllEntries()
        try await engine.verify()
        try expectUntouched(
          try await engine.readAllEntries(), since: written, "after verify() of what \(way.name) had written")
        context.noteProgress()
      }
      // The clock of another machine may be ahead, or wrong.
      let imported = [-1e9, 1e9, Date().timeIntervalSince1970 + 86_400].map { time in
        let date = Date(timeIntervalSince1970: time)
        return StorageEntry(key: key("of \(time)"), data: data("v"), createdAt: date, updatedAt: date)
      }
      for entry in imported {
        // The engine may refuse times before 1970.
        do { try await engine.writeEntries([entry]) } catch is CallFailure
          where entry.createdAt.timeIntervalSince1970 < 0
        { continue }
      }
      try await engine.verify()
      try await engine.remove(keys: Array(try await engine.allKeys().prefix(20)))
      let before = try await engine.readAllEntries()
      try await letClockAdvance()
      try await engine.verify()
      context.noteProgress()
      let after = try await engine.readAllEntries()
      try expectSameContents(after, before, "after verify()")
      try expectUntouched(after, since: before, "after verify()")
      if context.capabilities.contains(.atomicBatches) {
        try expect(after.map(\.key), is: before.map(\.key), "the keys of readAllEntries() after verify()")
      }
      if isPersistent {
        // verify() may have changed data that is only read when the place is opened.
        engine = try await context.reopen(engine)
        do {
          try expectSameContents(try await engine.readAllEntries(), before, "after verify() and reopening")
        } catch let violation as Violation {
          throw Violation(violation.description, rule: .w6)
        }
      }
      try await engine.verify()
      try await engine.removeAllData()
      try await engine.verify()
      engine = try await expectWritable(engine, context)
      try await engine.verify()
      if isPersistent { try await verifyBesideAnother(context) }
    }
    Check(
      .c1, "verification.beside-writers",
      "verify() during writes does not throw, and undoes no acknowledged write"
    ) { context in
      let engine = try await context.open()
      let keys = keys(6)
      try await engine.write(keys.map { ($0, noise(2_000)) })
      // The engine may abort a write while transaction bodies run.
      let methods = ChangeMethod.writing([])
      let rounds = context.rounds(quick: 60, standard: 240, exhaustive: 3_000, of: "writes beside verify()")
      try await whileRunning {
        try await gather(0..<keys.count) { task in
          for round in rounds.share(of: task, among: keys.count) {
            let value = noise(2_000, seed: UInt64(100 + round))
            let (method, new) = (methods[round % methods.count], key("new \(round)"))
            // Without this varying number of yields, calls that waited for verify() would only continue right before
            // the next verify().
            for _ in 0..<round % 7 { await Task.yield() }
            try await method.perform([(keys[task], value), (new, value)], in: engine)
            for _ in 0..<8 {
              await Task.yield()
              try expect(
                try await engine.read(key: keys[task]) == value,
                "beside verify() a task did not read what it had written by \(method.call)")
            }
            if round.isMultiple(of: 2) {
              try await engine.remove(key: new)
            } else {
              try await engine.remove(keys: [new])
            }
          }
        }
      } readers: { _ in
        try await engine.verify()
      }
      try expect(
        try await engine.allKeys(), areInAnyOrder: keys, "allKeys() after writes beside verify()")
    }
  }
}

/// Fails unless these are the same keys and values, in any order.
private func expectSameContents(
  _ entries: [StorageEntry], _ expected: [StorageEntry], _ when: String
) throws {
  func sorted(_ entries: [StorageEntry]) -> [(key: CacheKey, data: Data)] {
    entries.map { (key: $0.key, data: $0.data) }.sorted { $0.key < $1.key }
  }
  try expect(sorted(entries), are: sorted(expected), "readAllEntries() \(when), sorted,")
}

/// Verifies both of two engines on a place after changes by either, each by every method.
private func verifyBesideAnother(_ context: CheckContext) async throws {
  let place = context.root.appending(path: "shared", directoryHint: .isDirectory)
  let engine = try await context.open(place)
  if let other = try await context.openAnotherIfPossible(at: place) {
    let shared = entries(keys(3))
    for method in ChangeMethod.all(context.capabilities) {
      for changing in [other, engine] {
        // So that each of the engines has written what the other one changes.
        try await changing.write(shared)
        try await method.perform(shared.map { ($0.key, data(method.rawValue)) }, in: changing)
        try await verify(other, engine, method.call)
      }
      context.noteProgress()
    }
    try await context.close(other)
  }
  try await context.close(engine)
}

/// Fails if one of the two engines on a place reports corruption.
private func verify(_ one: EngineUnderTest, _ other: EngineUnderTest, _ call: String) async throws {
  for engine in [one, other] {
    do {
      try await engine.verify()
    } catch let failure as CallFailure {
      // An engine may need exclusive access to the place.
      if (failure.error as? StorageError)?.code == .locked { continue }
      throw Violation("after \(call) by one of two engines on the place, \(failure)")
    }
  }
}

/// Writes and removes after verify(), each by every method, and reopens the place. Returns the new engine.
private func expectWritable(
  _ engine: EngineUnderTest, _ context: CheckContext
) async throws -> EngineUnderTest {
  var (engine, expected) = (engine, ExpectedAnswers())
  for method in ChangeMethod.all(context.capabilities) where method != .removeAll {
    let own = key("by \(method.rawValue)")
    let operations: [StorageOperation] = method.removes ? [.remove(key: own)] : [.write(data("v"), key: own)]
    if method.removes {
      try await engine.write(data("v"), key: own)
      try await engine.verify()
    }
    try await method.perform(operations, in: engine)
    expected.apply(operations)
    do {
      try await expected.ask(.read, engine)
    } catch let violation as Violation {
      throw Violation("after verify() and \(method.call), \(violation)", rule: .w1)
    }
    if !method.removes { try await engine.verify() }
  }
  guard context.capabilities.contains(.persistent) else { return engine }
  engine = try await context.reopen(engine)
  do {
    try await expected.ask(.read, engine)
  } catch let violation as Violation {
    throw Violation("after changes behind verify(), and reopening, \(violation)", rule: .w6)
  }
  return engine
}
