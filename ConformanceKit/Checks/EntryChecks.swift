#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Entries imported from another engine with writeEntries(_:): rules W2, W3 and R6. Rule W4 is in BatchChecks and
// AtomicityChecks.

extension CheckDefinition {
  @CheckList static var entryChecks: [CheckDefinition] {
    Check(
      .w3, "entries.later-entry-wins",
      "writeEntries(_:) stores every value, the last of several for a key, and does nothing for an empty batch"
    ) { context in
      let engine = try await context.open()
      let (a, b, c) = (key("a"), key("b"), key("c"))
      try await engine.write(entries([a, c]))
      try await engine.writeEntries([])
      try await expectStored(entries([a, c]), absent: [b], in: engine)
      try await engine.writeEntries([
        entry(a, "1", day(1)), entry(b, "2", day(2)), entry(a, "3", day(3)), entry(a, "", day(4)),
      ])
      try await expectStored([(a, data("")), (b, data("2"))] + entries([c]), in: engine)
    }
    Check(
      .r6, "entries.keep-their-order",
      "new entries of writeEntries(_:) are in the given order after the existing ones, which keep their "
        + "positions"
    ) { context in
      let engine = try await context.open()
      let sorted = keys(20)
      let old = (0..<5).map { sorted[$0 * 3 % 5] }
      let new = (0..<15).map { sorted[5 + $0 * 7 % 15] }
      try await engine.write(entries(old))
      try await letClockAdvance()
      // Entries later in the order have an earlier createdAt, so an engine that sorts by stored times fails.
      let given = (new + [old[1], new[3]]).enumerated().map { entry($1, "new", day(40 - $0)) }
      try await engine.writeEntries(given)
      try await expectOrder(old + new, in: engine)
      // New keys only, each once.
      let others = keys(12, prefix: "another ").reversed().map { $0 }
      try await engine.writeEntries(others.enumerated().map { entry($1, "new", day(40 - $0)) })
      let all = old + new + others
      try await expectOrder(all, in: engine)
      guard context.capabilities.contains(.persistent) else { return }
      let reopened = try await context.reopen(engine)
      try expectPresent(all, among: try await reopened.allKeys(), "an import and reopening")
      try await expectOrder(all, in: reopened)
    }
    Check(
      .w2, "entries.keep-their-times",
      "writeEntries(_:) stores the given times, even for existing keys",
      needs: .preservesTimestamps
    ) { context in
      let engine = try await context.open()
      let (new, old) = (key("new"), key("old"))
      try await engine.write(entries([old]))
      let given = [
        StorageEntry(key: new, data: data("n"), createdAt: day(1), updatedAt: day(2.000_000_123)),
        StorageEntry(key: old, data: data("o"), createdAt: day(-9_000.25), updatedAt: day(-8_000.5)),
      ]
      try await engine.writeEntries(given)
      try await expectTimes(given, in: engine)
      // Of several entries for a key, the last one counts, with its times.
      let repeated = StorageEntry(key: key("twice"), data: data("2"), createdAt: day(7), updatedAt: day(8))
      try await engine.writeEntries([entry(repeated.key, "1", day(5)), repeated])
      try await expectTimes([repeated], in: engine)
      let created = try await engine.createdAt(key: old)
      let updated = try await window { try await engine.write(data("2"), key: old) }
      try expect(try await engine.createdAt(key: old), is: created, "createdAt(key:) after an overwrite")
      let time = try await engine.updatedAt(key: old) ?? .distantPast
      try expect(updated.contains(time), "updatedAt(key:) after an overwrite was \(describe(time))")
      // Another machine's clock may be ahead.
      let future = StorageEntry(key: new, data: data("f"), createdAt: day(3), updatedAt: Date() + 86_400)
      let ofTransactions = context.capabilities.contains(.transactions) ? [wayOfTransactions] : []
      for way in waysOfWriting + ofTransactions {
        try await engine.writeEntries([future])
        try await way.write(engine, [(new, data(way.name))])
        try await expectTimes([future], in: engine)
        do {
          try expect(
            try await engine.read(key: new), is: data(way.name),
            "read(key:) after \(way.name) over an entry of another machine, whose clock is ahead,")
        } catch let violation as Violation {
          throw Violation(violation.description, rule: .w1)
        }
      }
      for (number, way) in (waysOfWriting + ofTransactions).enumerated() {
        let beside = key("beside \(number)")
        let window = try await window { try await way.write(engine, [(beside, data(way.name))]) }
        for (name, time) in [
          ("createdAt(key:)", try await engine.createdAt(key: beside)),
          ("updatedAt(key:)", try await engine.updatedAt(key: beside)),
        ] {
          try expect(
            time.map(window.contains) ?? false,
            "\(name) of a new key that \(way.name) had written, beside an entry of another machine, whose clock is ahead, was "
              + (time.map { describe($0) } ?? "nil"))
        }
      }
      if context.capabilities.contains(.persistent) {
        try await expectTimes([future], in: try await context.reopen(engine))
      }
      try await checkDistantTimes(context)
    }
    Check(
      .w1, "entries.of-the-same-again",
      "writeEntries(_:) of the same entries a second time replaces what has been written or removed since"
    ) { context in
      let engine = try await context.open()
      let given = (0..<5).map { entry(key("entry \($0)"), "given", day($0)) }
      let written = given.map { (key: $0.key, data: $0.data) }
      for round in 0..<4 {
        try await engine.writeEntries(given)
        try await expectStored(written, in: engine)
        if round.isMultiple(of: 2) {
          try await engine.write(written.map { ($0.key, data("other")) })
        } else {
          try await engine.remove(keys: written.map(\.key))
        }
      }
      // An engine may remember removals with their times, which are later than those of the entries.
      for method in ChangeMethod.allCases where method.removes {
        try await engine.write(written.map { ($0.key, data("other")) })
        let backup = try await engine.readEntries(keys: written.map(\.key))
        try await letClockAdvance()
        try await method.perform(written, in: engine)
        try await engine.writeEntries(backup)
        do {
          try await expectStored(backup.map { ($0.key, $0.data) }, in: engine)
        } catch let violation as Violation {
          throw Violation("after \(method.call) and an import of what it had removed, \(violation)")
        }
      }
      // Other values with the same times.
      try await engine.writeEntries(given)
      let others = given.map { entry($0.key, "other", $0.updatedAt) }
      try await engine.writeEntries(others)
      try await expectStored(others.map { ($0.key, $0.data) }, in: engine)
    }
    Check(
      .w2, "entries.of-impossible-times",
      "writeEntries(_:) of times that cannot be stored throws, or stores times with createdAt <= updatedAt"
    ) { context in
      let engine = try await context.open()
      let beyond = [
        Date.distantPast, .distantFuture, Date(timeIntervalSinceReferenceDate: .infinity),
        Date(timeIntervalSinceReferenceDate: -.infinity), Date(timeIntervalSinceReferenceDate: .nan),
        Date(timeIntervalSinceReferenceDate: 1e300),
      ]
      let times = beyond.flatMap { [($0, day(1)), (day(1), $0), ($0, $0)] } + [(day(2), day(1))]
      for (created, updated) in times {
        let key = key(
          "created \(created.timeIntervalSinceReferenceDate), updated \(updated.timeIntervalSinceReferenceDate)"
        )
        let entry = StorageEntry(key: key, data: data("v"), createdAt: created, updatedAt: updated)
        do { try await engine.writeEntries([entry]) } catch is CallFailure { continue }
        try expect(try await engine.read(key: key), is: data("v"), "read(key:)")
        let (created, updated) = (try await engine.createdAt(key: key), try await engine.updatedAt(key: key))
        guard let created, let updated else {
          throw Violation("a timestamp of a key that had been written was nil")
        }
        try expect(created <= updated, "createdAt was \(describe(created)), updatedAt \(describe(updated))")
      }
      guard context.capabilities.contains(.atomicBatches) else { return }
      for time in beyond { try await importAround(time, in: engine) }
    }
  }
}

/// Imports an entry with a time that may be refused between two others, which must then be refused as well.
private func importAround(_ time: Date, in engine: EngineUnderTest) async throws {
  let around = keys(3, prefix: "around \(time.timeIntervalSinceReferenceDate), ")
  let batch = zip(around, [day(1), time, day(1)]).map { entry($0, "v", $1) }
  do { try await engine.writeEntries(batch) } catch is CallFailure {
    let found = try await engine.readDataAndKeys(keys: around).map(\.key)
    guard !found.isEmpty else { return }
    throw Violation(
      "writeEntries(_:) threw because of a time of \(around[1]), and had stored \(describe(found))", rule: .w4
    )
  }
}

/// A time this many days after a fixed time in the past.
private func day(_ number: Double) -> Date { Date(timeIntervalSince1970: 1_600_000_000 + number * 86_400) }

private func day(_ number: Int) -> Date { day(Double(number)) }

private func entry(_ key: CacheKey, _ value: String, _ date: Date) -> StorageEntry {
  StorageEntry(key: key, data: data(value), createdAt: date, updatedAt: date)
}

/// Imports entries with times around 1970 and 2001, and far from them. An engine may refuse times that it cannot store,
/// or store the nearest time that it can.
private func checkDistantTimes(_ context: CheckContext) async throws {
  let place = context.root.appending(path: "distant times", directoryHint: .isDirectory)
  let engine = try await context.open(place)
  // From 1900 to 2100. Every engine must be able to store the times from 1970 to 2038.
  let seconds: [Double] = [-2_208_988_800, -129_600, -0.25, 0, 978_307_200, 4_102_444_800]
  var stored: [StorageEntry] = []
  for seconds in seconds {
    let entry = entry(key("\(seconds) s"), "v", Date(timeIntervalSince1970: seconds))
    do {
      try await engine.writeEntries([entry])
    } catch is CallFailure where seconds < 0 || seconds > 2_147_483_647 {
      continue
    }
    stored.append(entry)
  }
  guard let first = stored.first, let last = stored.last,
    let earliest = try await engine.createdAt(key: first.key),
    let latest = try await engine.createdAt(key: last.key)
  else { throw Violation("a timestamp of a key that had been written was nil") }
  let lower = min(earliest, Date(timeIntervalSince1970: 978_307_200))
  let upper = max(latest, Date(timeIntervalSince1970: 2_147_400_000))
  let expected = stored.map { stored in
    entry(stored.key, "v", min(max(stored.createdAt, lower), upper))
  }
  try await expectTimes(expected, in: engine)
  guard context.capabilities.contains(.persistent) else { return }
  try await context.close(engine)
  let reopened = try await context.open(place)
  do {
    try await expectStored(expected.map { ($0.key, $0.data) }, in: reopened)
  } catch let violation as Violation {
    throw Violation("after reopening, of entries of distant times, \(violation)", rule: .w6)
  }
  try await expectTimes(expected, in: reopened)
}

/// Fails unless every method returns these times for the entries.
func expectTimes(_ entries: [StorageEntry], in engine: EngineUnderTest) async throws {
  let all = try await engine.readAllEntries()
  for entry in entries {
    let found = all.first { $0.key == entry.key }
    for (name, expected, actual) in [
      ("createdAt(key:)", entry.createdAt, try await engine.createdAt(key: entry.key)),
      ("updatedAt(key:)", entry.updatedAt, try await engine.updatedAt(key: entry.key)),
      ("createdAt in readAllEntries()", entry.createdAt, found?.createdAt),
      ("updatedAt in readAllEntries()", entry.updatedAt, found?.updatedAt),
    ] {
      let isRight = actual.map { abs($0.timeIntervalSince(expected)) <= ClockTolerance.seconds } ?? false
      try expect(
        isRight,
        "\(name) of \(entry.key) was \(actual.map { describe($0) } ?? "nil") instead of \(describe(expected))"
      )
    }
  }
}
