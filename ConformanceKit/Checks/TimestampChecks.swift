#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Timestamps: rule W2.

extension CheckDefinition {
  @CheckList static var timestampChecks: [CheckDefinition] {
    Check(
      .w2, "timestamps.of-many-writes",
      "after hundreds of consecutive writes, updatedAt is that of the last one"
    ) { context in
      let engine = try await context.open()
      for method in ChangeMethod.thatDate where context.capabilities.isSuperset(of: method.needs) {
        try await checkDateOfMany(method, context, engine)
      }
    }
    for method in ChangeMethod.thatDate {
      Check(
        .w2, "timestamps.of-first-\(method.rawValue)",
        "\(method.call) of a new key sets both timestamps to now", needs: method.needs
      ) { context in
        let engine = try await context.open()
        let window = try await window { try await method.perform([(key("k"), data("v"))], in: engine) }
        try await expect(created: window, updated: window, key("k"), in: engine)
      }
      Check(
        .w2, "\(method.rawValue).overwrite-keeps-created-at",
        "an overwrite by \(method.call) keeps createdAt and sets updatedAt to now", needs: method.needs
      ) { context in
        let engine = try await context.open()
        for first in ChangeMethod.thatDate where context.capabilities.isSuperset(of: first.needs) {
          let key = key("first by \(first.rawValue)")
          let created = try await window { try await first.perform([(key, data("first"))], in: engine) }
          let exactly = try await engine.createdAt(key: key)
          for version in 2...3 {
            try await letClockAdvance()
            let updated = try await window {
              try await method.perform([(key, data("\(version)"))], in: engine)
            }
            try await expect(created: created, updated: updated, key, in: engine)
            try expect(
              try await engine.createdAt(key: key), is: exactly, "createdAt(key:) after an overwrite")
          }
        }
      }
      Check(
        .w2, "\(method.rawValue).same-value-is-a-write",
        "\(method.call) of the value that is already stored keeps createdAt and sets updatedAt to now",
        needs: method.needs
      ) { context in
        let engine = try await context.open()
        let created = try await window { try await method.perform([(key("k"), data("v"))], in: engine) }
        try await letClockAdvance()
        let updated = try await window { try await method.perform([(key("k"), data("v"))], in: engine) }
        try await expect(created: created, updated: updated, key("k"), in: engine)
      }
      Check(
        .w2, "\(method.rawValue).created-no-later-than-updated",
        "after \(method.call), createdAt is not later than updatedAt", needs: method.needs
      ) { context in
        let engine = try await context.open()
        for key in keys(20) {
          try await method.perform([(key, data("v"))], in: engine)
          let (created, updated) = (
            try await engine.createdAt(key: key) ?? .distantFuture,
            try await engine.updatedAt(key: key) ?? .distantPast
          )
          try expect(
            created <= updated, "createdAt of \(key) was \(describe(created)), updatedAt \(describe(updated))"
          )
        }
        for entry in try await engine.readAllEntries() {
          try expect(
            entry.createdAt <= entry.updatedAt,
            "in readAllEntries(), createdAt of \(entry.key) was \(describe(entry.createdAt)), updatedAt "
              + describe(entry.updatedAt))
        }
      }
      Check(
        .w2, "\(method.rawValue).after-removal-renews-created-at",
        "\(method.call) of a key that was removed sets createdAt to now", needs: method.needs
      ) { context in
        let engine = try await context.open()
        for (name, remove) in waysOfRemoving(context.capabilities) {
          let key = key("removed by \(name)")
          try await method.perform([(key, data("first"))], in: engine)
          try await remove(engine, [key])
          try await letClockAdvance()
          let window = try await window { try await method.perform([(key, data("second"))], in: engine) }
          try await expect(created: window, updated: window, key, in: engine)
        }
      }
    }

    Check(
      .w2, "timestamps.renewed-within-apply",
      "a removal and a write of one key in one apply(_:) set createdAt to now, and so does removeAll"
    ) { context in
      let engine = try await context.open()
      try await engine.write(entries([key("a"), key("b")]))
      try await letClockAdvance()
      var window = try await window {
        try await engine.apply([.remove(key: key("a")), .write(data("v"), key: key("a"))])
      }
      try await expect(created: window, updated: window, key("a"), in: engine)
      try await letClockAdvance()
      window = try await ConformanceKit.window {
        try await engine.apply([.removeAll, .write(data("v"), key: key("b"))])
      }
      try await expect(created: window, updated: window, key("b"), in: engine)
    }
    Check(
      .w2, "timestamps.kept-within-apply",
      "an overwrite between other operations of one apply(_:) keeps createdAt"
    ) { context in
      let engine = try await context.open()
      let created = try await window { try await engine.write(entries([key("a"), key("b")])) }
      try await letClockAdvance()
      let updated = try await window {
        try await engine.apply([
          .write(data("1"), key: key("c")), .write(data("2"), key: key("a")), .remove(key: key("b")),
          .write(data("3"), key: key("a")),
        ])
      }
      try await expect(created: created, updated: updated, key("a"), in: engine)
      try await expect(created: updated, updated: updated, key("c"), in: engine)
    }
    Check(.w2, "timestamps.of-absent-keys", "an absent key has no timestamps, before and after it existed") {
      context in
      let engine = try await context.open()
      for _ in 0..<2 {
        try expect(try await engine.createdAt(key: key("k")), is: nil, "createdAt(key:) of an absent key")
        try expect(try await engine.updatedAt(key: key("k")), is: nil, "updatedAt(key:) of an absent key")
        try await engine.write(data("v"), key: key("k"))
        try await engine.remove(key: key("k"))
      }
    }
    Check(
      .w2, "timestamps.never-go-back",
      "updatedAt never moves backwards, and createdAt is never later than updatedAt"
    ) {
      context in
      let engine = try await context.open()
      var last = Date.distantPast
      for number in 0..<200 {
        try await engine.write(data("\(number)"), key: key("k"))
        guard let created = try await engine.createdAt(key: key("k")),
          let updated = try await engine.updatedAt(key: key("k"))
        else { throw Violation("a timestamp of a key that had been written was nil") }
        try expect(created <= updated, "createdAt was \(describe(created)), updatedAt \(describe(updated))")
        try expect(last <= updated, "updatedAt went back from \(describe(last)) to \(describe(updated))")
        last = updated
      }
    }
    Check(
      .w2, "timestamps.of-concurrent-writes",
      "while several tasks write one key (through two engines, if the place can be shared), no task reads an "
        + "earlier updatedAt than before"
    ) { try await checkTimesOfConcurrentWrites($0) }
    Check(.w2, "timestamps.of-each-key", "a write changes the timestamps of no other key") { context in
      let engine = try await context.open()
      let keys = keys(10)
      let created = try await window { try await engine.write(entries(keys)) }
      try await letClockAdvance()
      try await engine.write(data("v"), key: keys[3])
      try await engine.remove(key: keys[4])
      for key in keys where key != keys[3] && key != keys[4] {
        try await expect(created: created, updated: created, key, in: engine)
      }
    }
    Check(
      .w2, "timestamps.in-entries",
      "readAllEntries() has the same timestamps as createdAt(key:) and updatedAt(key:)"
    ) {
      context in
      let engine = try await context.open()
      try await engine.write(entries(keys(5)))
      try await letClockAdvance()
      try await engine.write(data("v"), key: keys(5)[2])
      for entry in try await engine.readAllEntries() {
        let times = [
          ("createdAt", entry.createdAt, try await engine.createdAt(key: entry.key)),
          ("updatedAt", entry.updatedAt, try await engine.updatedAt(key: entry.key)),
        ]
        for (name, listed, time) in times where !(time.map { isSame($0, listed) } ?? false) {
          throw Violation(
            "\(name)(key:) of \(entry.key) was \(describe(time as Any)), but in readAllEntries() "
              + "\(describe(listed))"
          )
        }
      }
    }
  }
}

extension ChangeMethod {
  /// Methods that set the times themselves.
  static let thatDate = allCases.filter { !$0.removes && $0 != .writeEntries }
}

/// Writes a key very often in a row. If an engine advanced its clock with each write, to keep times different, the
/// clock would run ahead.
private func checkDateOfMany(
  _ method: ChangeMethod, _ context: CheckContext, _ engine: EngineUnderTest
) async throws {
  let own = key("by \(method.call)")
  var (count, found): (Int, Date?) = (0, nil)
  // The clock may be set back during so many writes, and updatedAt never goes backwards.
  for _ in 0..<2 {
    for number in context.rounds(quick: 300, standard: 300, exhaustive: 3_000, of: "writes in a row") {
      try await method.perform([(own, data("\(number)"))], in: engine)
      count += 1
    }
    let last = try await window { try await method.perform([(own, data("last"))], in: engine) }
    count += 1
    context.noteProgress()
    found = try await engine.updatedAt(key: own)
    if let found, last.contains(found) { return }
  }
  throw Violation(
    "updatedAt(key:) after \(count) calls of \(method.call) was \(describe(found as Any)), not of the last one"
  )
}

/// Fails unless the timestamps of the key lie in the windows.
func expect(
  created: ClosedRange<Date>, updated: ClosedRange<Date>, _ key: CacheKey, in engine: EngineUnderTest
) async throws {
  for (name, window, date) in [
    ("createdAt", created, try await engine.createdAt(key: key)),
    ("updatedAt", updated, try await engine.updatedAt(key: key)),
  ] {
    guard let date else { throw Violation("\(name)(key:) of \(key) returned nil") }
    guard !window.contains(date) else { continue }
    let distance =
      date < window.lowerBound
      ? "\(window.lowerBound.timeIntervalSince(date)) s before the first"
      : "\(date.timeIntervalSince(window.upperBound)) s after the last"
    throw Violation("\(name)(key:) of \(key) returned a time \(distance) possible moment")
  }
}

/// Has tasks write one key, and compares each updatedAt with the latest one that was read before the call. A write that
/// reads the clock before it gets its lock sets an earlier time. Two engines on the place may use different locks.
private func checkTimesOfConcurrentWrites(_ context: CheckContext) async throws {
  let engines = try await context.openTwiceIfPossible()
  let shared = key("shared")
  let writerCount = 4
  let rounds = context.rounds(quick: 400, standard: 2_000, exhaustive: 40_000, of: "writes of one key")
  let methods = ChangeMethod.thatDate.filter { context.capabilities.isSuperset(of: $0.needs) }
  let latest = MutexProtected(Date.distantPast)
  try await engines[0].write(data("v"), key: shared)
  try await whileRunning {
    try await gather(0..<writerCount) { task in
      let engine = engines[task % engines.count]
      for number in rounds.share(of: task, among: writerCount) {
        let method = methods[(number / writerCount + task) % methods.count]
        try await method.performAmongMany([(shared, data("\(number)"))], in: engine)
        // Without this, an engine that never suspends would finish before a reader has read twice.
        await Task.yield()
      }
    }
  } readers: { reader in
    let earliest = latest.withLock { $0 }
    guard let updated = try await engines[reader % engines.count].updatedAt(key: shared) else {
      throw Violation("updatedAt(key:) of a key that was never removed was nil")
    }
    try expect(
      updated >= earliest.addingTimeInterval(-precisionOfTime),
      "updatedAt went back from \(describe(earliest)) to \(describe(updated)) while \(writerCount) tasks "
        + "wrote the key"
    )
    latest.withLock { $0 = max($0, updated) }
  }
}
