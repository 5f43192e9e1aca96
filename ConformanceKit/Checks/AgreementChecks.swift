#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// All methods agree: rules R1 to R4 and W2.

extension CheckDefinition {
  @CheckList static var agreementChecks: [CheckDefinition] {
    Check(
      .r1, "reads.of-removed-keys",
      "a removed key is absent for every method, however it was removed"
    ) { context in
      let engine = try await context.open()
      for (name, removal) in waysOfRemoving(context.capabilities) {
        let keys = keys(4)
        let (gone, kept) = ([keys[1], keys[2]], [keys[0], keys[3]])
        try await engine.write(entries(keys))
        try await removal(engine, gone)
        let left = name == ChangeMethod.removeAll.call ? [] : kept
        for key in gone {
          try expect(try await engine.read(key: key), is: nil, "read(key:) after \(name)")
          try expect(try await engine.keyExists(key), is: false, "keyExists(_:) after \(name)")
          try expect(try await engine.createdAt(key: key), is: nil, "createdAt(key:) after \(name)")
          try expect(try await engine.updatedAt(key: key), is: nil, "updatedAt(key:) after \(name)")
        }
        try expect(try await engine.read(keys: gone), is: [], "read(keys:) after \(name)")
        try expect(
          try await engine.readDataAndKeys(keys: gone), are: [], "readDataAndKeys(keys:) after \(name)")
        try expect(
          try await engine.readEntries(keys: keys).map(\.key).sorted(), is: left,
          "the keys of readEntries(keys:), sorted, after \(name)")
        try expect(try await engine.keysExist(keys), is: left, "keysExist(_:) after \(name)")
      }
    }

    Check(
      .r3, "reads.of-everything-agree",
      "after any writes and removals, every method that reads everything returns the same entries"
    ) { context in
      let engine = try await context.open()
      var expected: [CacheKey: Data] = [:]
      let keys = keys(60)
      for step in 0..<90 {
        let key = keys[step * 37 % 60]
        if step % 4 == 3, expected[key] != nil {
          try await engine.remove(key: key)
          expected[key] = nil
        } else {
          let value =
            step % 7 == 0 ? Data() : data(String(repeating: "\(step) ", count: step * step % 600 + 1))
          try await engine.write(value, key: key)
          expected[key] = value
        }
        if step % 30 == 29 { try await expectEverything(expected, in: engine) }
      }
      let removed = Array(keys.prefix(20))
      try await engine.remove(keys: removed)
      for key in removed { expected[key] = nil }
      try await expectEverything(expected, in: engine)
    }

    Check(
      .w2, "timestamps.of-a-batch",
      "a batch sets the timestamps of all its entries, including repeated ones"
    ) { context in
      let engine = try await context.open()
      let keys = keys(30)
      let old = try await window { try await engine.write(entries(Array(keys.prefix(10)))) }
      for way in [0, 1] {
        try await letClockAdvance()
        let new = Array(keys[(way * 10 + 5)..<(way * 10 + 15)])
        let now = try await window {
          if way == 0 {
            try await engine.write(entries(new + new))
          } else {
            try await engine.apply((new + new).map { .write(data("v"), key: $0) })
          }
        }
        for key in new.suffix(way == 0 ? 5 : 10) where way == 0 || !keys[10..<15].contains(key) {
          try await expect(created: now, updated: now, key, in: engine)
        }
        for key in keys.prefix(5) { try await expect(created: old, updated: old, key, in: engine) }
        if way == 0 {
          for key in keys[5..<10] { try await expect(created: old, updated: now, key, in: engine) }
        }
      }
    }
    Check(
      .w2, "timestamps.of-what-is-read",
      "neither reads nor rejected batches change timestamps"
    ) { context in
      let engine = try await context.open()
      let keys = keys(6)
      try await engine.write(entries(keys))
      func times() async throws -> [[Date?]] {
        var times: [[Date?]] = []
        for key in keys {
          times.append([try await engine.createdAt(key: key), try await engine.updatedAt(key: key)])
        }
        return times
      }
      let before = try await times()
      try await letClockAdvance()
      _ = try await everyRead(of: keys, in: engine)
      _ = try await engine.keysExist(keys)
      try await engine.remove(keys: [key("absent")])
      do {
        try await engine.write(entries(keys + [key("")], version: 2))
        // Rule W4 covers that this is refused and that no part of it takes effect.
        return
      } catch is CallFailure {}
      for key in keys {
        if try await engine.read(key: key) != value(for: key) { return }
      }
      try await letClockAdvance()
      let after = try await times()
      for (key, (before, after)) in zip(keys, zip(before, after)) {
        try expect(
          after, is: before, "after reads and a rejected batch, createdAt(key:) and updatedAt(key:) of \(key)"
        )
      }
    }
  }
}

/// Fails unless each method that reads everything returns these entries.
private func expectEverything(_ expected: [CacheKey: Data], in engine: EngineUnderTest) async throws {
  let sorted = expected.map { (key: $0.key, data: $0.value) }.sorted { $0.key < $1.key }
  func expectSame(_ entries: [(key: CacheKey, data: Data)], _ method: String) throws {
    try expect(entries.count, is: sorted.count, "the number of entries of \(method)")
    try expect(entries.sorted { $0.key < $1.key }, are: sorted, "\(method), sorted,")
  }
  try expectSame(try await engine.readAllDataAndKeys(), "readAllDataAndKeys()")
  try expectSame(try await engine.readAllEntries().map { ($0.key, $0.data) }, "readAllEntries()")
  try expectSame(try await engine.scan(.all, limit: nil), "scan(_:limit:)")
  let values = try await engine.readAllData()
  try expect(values.count, is: sorted.count, "the number of values of readAllData()")
  var missing: [Data: Int] = [:]
  for entry in sorted { missing[entry.data, default: 0] += 1 }
  for value in values { missing[value, default: 0] -= 1 }
  try expect(
    missing.values.allSatisfy { $0 == 0 }, "readAllData() returned other values than the stored ones")
  try expect(try await engine.allKeys(), areInAnyOrder: sorted.map(\.key), "allKeys()")
}
