#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Writing one entry, and durability: rules W1 and W6.

extension CheckDefinition {
  @CheckList static var writeChecks: [CheckDefinition] {
    Check(
      .w1, "write.of-values-like-others",
      "a value is stored even if it is already there, under this key or another, or differs only in the "
        + "middle"
    ) { try await checkAlikeValues($0) }
    Check(.w1, "write.is-read-back", "a read returns what was written, by any method") {
      context in
      let engine = try await context.open()
      let keys = [key("one"), key("many"), key("applied")]
      try await engine.write(value(for: keys[0]), key: keys[0])
      try await engine.write(entries([keys[1]]))
      try await engine.apply([.write(value(for: keys[2]), key: keys[2])])
      try await expectStored(entries(keys), in: engine)
    }
    Check(.w1, "write.replaces-the-whole-value", "an overwrite replaces the whole value, longer or shorter") {
      context in
      let engine = try await context.open()
      let sizes = [100, 10_000, 1, 60_000, 0, 4_096, 3]
      for (version, size) in sizes.enumerated() {
        let new = Data(repeating: UInt8(ascii: "a") + UInt8(version), count: size)
        switch version % 3 {
        case 0: try await engine.write(new, key: key("k"))
        case 1: try await engine.write([(key: key("k"), data: new)])
        default: try await engine.apply([.write(new, key: key("k"))])
        }
        try await expectStored([(key("k"), new)], in: engine)
      }
    }
    Check(
      .w1, "write.is-seen-by-every-method",
      "every method that reads values returns the new one after an overwrite"
    ) {
      context in
      let engine = try await context.open()
      for version in 1...4 {
        try await engine.write(data("\(version)"), key: key("k"))
        for (method, values) in try await everyRead(of: [key("k")], in: engine) {
          let isNew = values.contains(data("\(version)")) && !values.contains(data("\(version - 1)"))
          try expect(isNew, "after write \(version) of a key, \(method) returned \(describe(values))")
        }
      }
    }
    Check(.w1, "write.touches-no-other-key", "a write leaves every other entry as it was") { context in
      let engine = try await context.open()
      let keys = keys(50)
      try await engine.write(entries(keys))
      try await engine.write(value(for: keys[25], version: 2), key: keys[25])
      for key in keys {
        let version = key == keys[25] ? 2 : 1
        try expect(
          try await engine.read(key: key), is: value(for: key, version: version), "read(key:) of \(key)")
      }
    }
    Check(.w1, "write.after-removal", "a key that was removed can be written again") { context in
      let engine = try await context.open()
      for version in 1...3 {
        try await engine.write(value(for: key("k"), version: version), key: key("k"))
        try expect(
          try await engine.read(key: key("k")), is: value(for: key("k"), version: version), "read(key:)")
        try await engine.remove(key: key("k"))
        try expect(try await engine.read(key: key("k")), is: nil, "read(key:) after the removal")
      }
    }

    Check(
      .w6, "persistence.after-closing", "every acknowledged change is there after close() and reopening",
      needs: .persistent
    ) { context in
      let engine = try await context.open()
      let history = try await makeHistory(in: engine)
      let reopened = try await context.reopen(engine)
      try await expectStored(history.left, absent: history.removed, in: reopened)
    }
    Check(
      .w6, "persistence.without-closing",
      "every acknowledged change is there after the engine is released without close() and reopened",
      needs: .persistent
    ) { context in
      let history = try await context.openAndDrop { try await makeHistory(in: $0) }
      let engine = try await context.open()
      try await expectStored(history.left, absent: history.removed, in: engine)
      try await engine.verify()
    }
    Check(
      .w6, "persistence.of-keys-and-values",
      "keys of every kind and values of every size are there after reopening, and so are writes after a "
        + "large one",
      needs: .persistent
    ) { context in
      try await checkLargeWritesSurvive(context)
      let engine = try await context.open()
      var written = entries(AdversarialKeys.all)
      for size in [0, 1, 4_096, 70_000, 1_048_577] { written.append((key("size \(size)"), noise(size))) }
      // Longer values are written first, so that reading after reopening reveals remains of them.
      try await engine.write([0, 1, 4_096, 70_000].map { (key("size \($0)"), noise($0 + 140_000, seed: 9)) })
      try await engine.write(written)
      // Rules K2, K3 and V2 cover what must be there; here it only has to be the same as before.
      func contents(of engine: EngineUnderTest) async throws -> [(key: CacheKey, data: Data?)] {
        var contents: [(key: CacheKey, data: Data?)] = []
        for (key, _) in written { contents.append((key, try await engine.read(key: key))) }
        return contents
      }
      let (before, keys) = (try await contents(of: engine), try await engine.allKeys().inByteOrder())
      let reopened = try await context.reopen(engine)
      for (before, after) in zip(before, try await contents(of: reopened)) {
        try expect(after.data, is: before.data, "read(key:) of \(before.key) after reopening")
      }
      try expect(
        try await reopened.allKeys().inByteOrder(), is: keys, "allKeys(), sorted, after reopening")
    }
    Check(
      .w6, "persistence.of-timestamps", "createdAt and updatedAt are the same after reopening",
      needs: .persistent
    ) { context in
      let engine = try await context.open()
      let keys = ["a", "b", "c", "d"].map { key($0) }
      try await engine.write(entries(keys))
      try await letClockAdvance()
      try await engine.write(data("v"), key: keys[0])
      // In a log, a removal and a write may look like an overwrite.
      try await engine.remove(key: keys[2])
      try await engine.write(data("v"), key: keys[2])
      try await wayOfReplacing.write(engine, entries([keys[3]]))
      let before = try await timestamps(of: keys, in: engine)
      let after = try await timestamps(of: keys, in: try await context.reopen(engine))
      for (before, after) in zip(before, after) {
        try expect(
          abs(before.timeIntervalSince(after)) <= precisionOfTime,
          "a timestamp was \(describe(before)) before and \(describe(after)) after reopening")
      }
    }
    Check(
      .w6, "persistence.over-many-openings",
      "writes and removals of each of many sessions are visible in all later sessions, whatever is called "
        + "first",
      needs: .persistent
    ) { context in
      let keys = keys(12)
      var expected: [CacheKey: Data] = [:]
      for session in 0..<6 {
        let engine = try await context.open()
        let absent = keys.filter { expected[$0] == nil }
        try await expectStored(expected.map { ($0.key, $0.value) }, absent: absent, in: engine)
        let (new, changed, gone) = (keys[session * 2], keys[session], keys[max(0, session * 2 - 3)])
        try await engine.write(entries([new, changed], version: session))
        if session % 2 == 1 {
          try await engine.remove(key: gone)
        } else {
          try await engine.apply([.remove(key: gone)])
        }
        for key in [new, changed] { expected[key] = value(for: key, version: session) }
        expected[gone] = nil
        if session % 3 == 2 { engine.release() } else { try await context.close(engine) }
      }
      try await checkFirstCalls(context)
    }
    Check(
      .w6, "persistence.of-emptiness", "removed entries stay removed after reopening", needs: .persistent
    ) { context in
      var engine = try await context.open()
      try await engine.write(entries(keys(20)))
      try await engine.removeAllData()
      engine = try await context.reopen(engine)
      try await expectStored([], absent: keys(20), in: engine)
      try await engine.write(entries(keys(3)))
      try await engine.apply([.removeAll, .write(data("v"), key: key("k"))])
      engine = try await context.reopen(engine)
      try await expectStored([(key("k"), data("v"))], absent: keys(3), in: engine)
      // Writes between the removal and the reopening are newer than the removal.
      for method in [ChangeMethod.removeAll, .apply, .transaction]
      where context.capabilities.isSuperset(of: method.needs) {
        try await engine.write(entries(keys(20)))
        try await method.perform([.removeAll], in: engine)
        let new = entries([keys(20)[3], key("new")], version: 2)
        try await engine.write(new)
        engine = try await context.reopen(engine)
        do {
          try await expectStored(new, absent: keys(20).filter { $0 != keys(20)[3] }, in: engine)
        } catch let violation as Violation {
          throw Violation("after \(method.call) removed everything, writes and reopening, \(violation)")
        }
        try await engine.write(entries(keys(20)))
        try await method.perform([.removeAll], in: engine)
        engine.release()
        engine = try await context.open()
        do {
          try await expectStored([], absent: keys(20), in: engine)
        } catch let violation as Violation {
          throw Violation("after \(method.call) removed everything, without close(), \(violation)")
        }
      }
    }
  }
}

/// Writes, overwrites and removes in every way. Returns the keys that exist and those that do not.
private func makeHistory(
  in engine: EngineUnderTest
) async throws -> (left: [(key: CacheKey, data: Data)], removed: [CacheKey]) {
  let keys = keys(40)
  for key in keys.prefix(20) { try await engine.write(value(for: key), key: key) }
  try await engine.write(entries(Array(keys.suffix(20))))
  try await engine.write(value(for: keys[1], version: 2), key: keys[1])
  try await engine.write(entries([keys[2], keys[22]], version: 2))
  try await engine.remove(key: keys[3])
  try await engine.remove(keys: [keys[4], keys[24]])
  try await engine.apply([.write(value(for: keys[5], version: 2), key: keys[5]), .remove(key: keys[25])])
  var removed = [3, 4, 24, 25].map { keys[$0] }
  var (overwritten, new) = ([1, 2, 22, 5].map { keys[$0] }, [key("imported")])
  try await wayOfImporting.write(engine, entries([keys[6], new[0]], version: 2))
  overwritten += [keys[6], new[0]]
  if engine.capabilities.contains(.transactions) {
    try await engine.withTransaction { transaction in
      try transaction.remove(key: keys[27])
      for key in [keys[7], key("by a body")] { try transaction.write(value(for: key, version: 2), key: key) }
      try transaction.remove(key: keys[28])
      try transaction.write(Data(), key: keys[8])
      try transaction.write(value(for: keys[8], version: 2), key: keys[8])
    }
    new.append(key("by a body"))
    removed += [keys[27], keys[28]]
    overwritten += [keys[7], keys[8], key("by a body")]
  }
  let left = (keys + new).filter { !removed.contains($0) }
    .map { (key: $0, data: value(for: $0, version: overwritten.contains($0) ? 2 : 1)) }
  return (left, removed)
}

/// Fails unless large values, a batch of them and what was written after them are there after reopening, with and
/// without `close()`: an engine that mistakes a long log record for a torn one stops reading there.
private func checkLargeWritesSurvive(_ context: CheckContext) async throws {
  let place = context.root.appending(path: "large values", directoryHint: .isDirectory)
  let isQuick = context.budget.level == .quick
  let sizes = isQuick ? [(4 << 20) + 1] : [(4 << 20) + 1, 17 << 20]
  for isClosed in [true, false] {
    let when = "after reopening \(isClosed ? "with" : "without") close()"
    let engine = try await context.open(place)
    // The second time, the same keys have different values.
    func value(_ size: Int) -> Data { noise(size, seed: UInt64(size) + (isClosed ? 1 : 2)) }
    var kept: [Int] = []
    for size in sizes {
      do {
        try await engine.write(value(size), key: key("large \(size)"))
        kept.append(size)
      } catch let failure as CallFailure where (failure.error as? StorageError)?.code == .valueTooLarge {
        // Rule V2 covers which sizes may be refused.
        continue
      }
      context.noteProgress()
    }
    let batch = (0..<(isQuick ? 0 : 20)).map { number in (1 << 20) + number }
    try await engine.write(batch.map { (key("large \($0)"), value($0)) })
    try await engine.write(data("last \(isClosed)"), key: key("last"))
    if isClosed { try await context.close(engine) } else { engine.release() }
    context.noteProgress()
    let reopened = try await context.open(place)
    for size in kept + batch {
      let found = try await reopened.read(key: key("large \(size)"))
      try expect(found == value(size), "a value of \(size) bytes was missing or different \(when)")
    }
    try expect(
      try await reopened.read(key: key("last")), is: data("last \(isClosed)"),
      "read(key:) of what was written last, after large values, \(when)")
    try await context.close(reopened)
    context.noteProgress()
  }
}

private func timestamps(of keys: [CacheKey], in engine: EngineUnderTest) async throws -> [Date] {
  var dates: [Date] = []
  for key in keys {
    for date in [try await engine.createdAt(key: key), try await engine.updatedAt(key: key)] {
      guard let date else { throw Violation("the timestamps of \(key) were nil") }
      dates.append(date)
    }
  }
  return dates
}
