#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A body reads its own writes: rule T2.

extension CheckDefinition {
  @CheckList static var transactionReadChecks: [CheckDefinition] {
    for read in ReadInBody.all {
      Check(
        .t2, "transactions.own-writes-in-\(read.id)",
        "\(read.name) of a transaction sees the writes and removals of its body", needs: .transactions
      ) { try await checkOwnWrites($0, read) }
    }
    Check(
      .t2, "transactions.own-writes-of-any-key",
      "a body distinguishes its own writes and removals of unusual, similar keys",
      needs: .transactions
    ) { try await checkUnusualKeys($0) }
    Check(
      .t2, "transactions.reads-of-many-bytes",
      "a body that reads or scans many large values gets all of them, including its own", needs: .transactions
    ) { try await checkLargeAnswers($0) }
    Check(
      .t2, "transactions.scans-among-own-writes",
      "a scan over thousands of entries includes the writes and removals of the body among them, in order of "
        + "keys",
      needs: .transactions
    ) { try await checkScansAmongOwnWrites($0) }
    Check(
      .t2, "transactions.scans-after-many-removals",
      "a scan with a limit skips entries that the body has removed, and stops at the limit",
      needs: .transactions
    ) { try await checkScansBehindRemovals($0) }
  }
}

/// One kind of read in a transaction, with its expected result.
private struct ReadInBody: Sendable {
  let id: String
  let name: String
  let compare: @Sendable (any StorageTransaction, [CacheKey: Data]) throws -> Void

  /// Keys that exist, that were removed, and that never existed.
  static let keys = ["a", "b", "c", "d", "e", "f", "z"].map { key($0) }

  static let all: [ReadInBody] = [
    .init(id: "read", name: "read(key:)") { transaction, expected in
      for key in keys {
        try expect(try transaction.read(key: key), is: expected[key], "read(key:) of \(key)")
      }
    },
    .init(id: "read-of-many", name: "read(keys:)") { transaction, expected in
      let asked = keys.reversed() + [keys[0], keys[0]]
      try expect(try transaction.read(keys: asked), is: asked.compactMap { expected[$0] }, "read(keys:)")
    },
    .init(id: "keyExists", name: "keyExists(_:)") { transaction, expected in
      for key in keys {
        try expect(try transaction.keyExists(key), is: expected[key] != nil, "keyExists(_:) of \(key)")
      }
    },
    .init(id: "keyCount", name: "keyCount()") { transaction, expected in
      try expect(try transaction.keyCount(), is: expected.count, "keyCount()")
    },
    .init(id: "allKeys", name: "allKeys()") { transaction, expected in
      try expect(try transaction.allKeys(), areInAnyOrder: Array(expected.keys), "allKeys()")
    },
    .init(id: "scan", name: "scan(_:limit:)") { transaction, expected in
      let sorted = expected.sorted { $0.key < $1.key }.map { (key: $0.key, data: $0.value) }
      try expect(try transaction.scan(.all, limit: nil), are: sorted, "scan(.all)")
      try expect(try transaction.scan(.all, limit: .max), are: sorted, "scan(.all) up to \(Int.max) entries")
      for limit in [0, -1, .min] {
        try expect(try transaction.scan(.all, limit: limit), are: [], "scan(.all) up to \(limit) entries")
      }
      for limit in 1...3 {
        for after in keys {
          try expect(
            try transaction.scan(KeyRange(after: after, upTo: nil), limit: limit),
            are: Array(sorted.filter { after < $0.key }.prefix(limit)),
            "scan after \(after) up to \(limit) entries")
        }
      }
      try expect(
        try transaction.scan(KeyRange(after: keys[0], upTo: keys[3]), limit: nil),
        are: sorted.filter { keys[0] < $0.key && !(keys[3] < $0.key) }, "scan of a range")
      try expect(
        try transaction.scan(.prefix("d"), limit: nil), are: sorted.filter { $0.key.value.hasPrefix("d") },
        "scan of a prefix")
    },
  ]
}

/// Changes that bodies make, one after the other.
private let changesInBodies: [[StorageOperation]] = [
  // Next to the existing entries.
  [
    .write(data("new"), key: key("e")), .write(data("overwritten"), key: key("b")), .remove(key: key("c")),
    .remove(key: key("d")), .write(data("again"), key: key("d")), .remove(key: key("z")),
    .write(data("passing"), key: key("f")), .remove(key: key("f")), .write(Data(), key: key("a")),
    .write(data("and again"), key: key("d")),
  ],
  // Instead of the existing entries.
  [
    .write(data("before"), key: key("f")), .removeAll, .write(data("after"), key: key("b")),
    .remove(key: key("a")), .write(data("after, too"), key: key("e")), .remove(key: key("e")),
  ],
  [.removeAll],
  [.removeAll, .write(data("last"), key: key("c"))],
]

private func checkOwnWrites(_ context: CheckContext, _ read: ReadInBody) async throws {
  let engine = try await context.open()
  var expected: [CacheKey: Data] = [:]
  for name in ["a", "b", "c", "d"] { expected[key(name)] = value(for: key(name)) }
  try await engine.write(expected.map { ($0.key, $0.value) })
  for changes in changesInBodies {
    let before = expected
    expected = try await engine.withTransaction { transaction in
      var expected = before
      try read.compare(transaction, expected)
      for change in changes {
        try transaction.apply([change])
        switch change {
        case .write(let data, let key): expected[key] = data
        case .remove(let key): expected[key] = nil
        case .removeAll: expected = [:]
        }
        try read.compare(transaction, expected)
      }
      return expected
    }
    try await expectStored(
      expected.map { ($0.key, $0.value) }, absent: ReadInBody.keys.filter { expected[$0] == nil }, in: engine)
    try expect(try await engine.keyCount(), is: expected.count, "keyCount() after a transaction")
  }
}

/// Writes unusual keys one after the other, removes some, and reads each of them and all.
private func checkUnusualKeys(_ context: CheckContext) async throws {
  let engine = try await context.open()
  for family in AdversarialKeys.families {
    let keys = family.keys
    try await engine.write(entries(Array(keys.prefix(keys.count / 3))))
    let kept = try await engine.withTransaction { transaction in
      for key in keys { try transaction.write(value(for: key, version: 2), key: key) }
      func expectAnswers(_ present: [CacheKey], _ when: String) throws {
        for key in keys {
          let expected = present.contains(key) ? value(for: key, version: 2) : nil
          try expect(try transaction.read(key: key), is: expected, "read(key:) of \(key) \(when)")
          try expect(try transaction.keyExists(key), is: expected != nil, "keyExists(_:) of \(key) \(when)")
        }
        let wanted = present.inByteOrder()
        try expect(
          try transaction.read(keys: keys),
          is: keys.filter(present.contains).map { value(for: $0, version: 2) },
          "read(keys:) \(when)")
        try expect(try transaction.allKeys().sorted(), is: wanted, "allKeys() \(when), sorted,")
        try expect(try transaction.keyCount(), is: wanted.count, "keyCount() \(when)")
        try expect(
          try transaction.scan(.all, limit: nil), are: entries(wanted, version: 2), "scan(.all) \(when)")
      }
      try expectAnswers(keys, "after writes by a body")
      for (number, key) in keys.enumerated() where number % 3 == 1 { try transaction.remove(key: key) }
      let kept = keys.enumerated().filter { $0.offset % 3 != 1 }.map(\.element)
      try expectAnswers(kept, "after writes and removals by a body")
      return kept
    }
    context.noteProgress()
    try await expectStored(
      entries(kept, version: 2), absent: keys.filter { !kept.contains($0) }, in: engine)
    try expect(try await engine.keyCount(), is: kept.count, "keyCount() after a transaction of unusual keys")
    try await engine.removeAllData()
  }
  try await checkScansOfPrefixes(engine, context)
}

/// Reads more in one call than fits into a message or a buffer.
private func checkLargeAnswers(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(context.byLevel(quick: 48, standard: 300, exhaustive: 1_200))
  @Sendable func large(_ number: Int, _ version: Int) -> Data {
    noise(48 << 10, seed: UInt64(number * 2 + version))
  }
  let stored = keys.enumerated().map { (key: $1, data: large($0, 0)) }
  // In batches that are small enough for every engine.
  for part in stride(from: 0, to: stored.count, by: 12) {
    try await engine.write(Array(stored[part..<min(part + 12, stored.count)]))
    context.noteProgress()
  }
  try await engine.withTransaction { transaction in
    func expectAll(_ values: [Data], _ when: String) throws {
      let read = try transaction.read(keys: keys)
      try expect(
        read == values,
        "read(keys:) of \(keys.count) values of \(48 << 10) bytes \(when) returned \(read.count), or not these"
      )
      for limit in [nil, keys.count - 1] {
        let found = try transaction.scan(.all, limit: limit).map(\.data)
        try expect(
          found == Array(values.prefix(limit ?? .max)),
          "a scan of \(limit ?? keys.count) values of \(48 << 10) bytes \(when) returned \(found.count), or not these"
        )
      }
    }
    try expectAll(stored.map(\.data), "in a body")
    context.noteProgress()
    var values = stored.map(\.data)
    for number in keys.indices where number % 2 == 1 {
      values[number] = large(number, 1)
      try transaction.write(values[number], key: keys[number])
    }
    try expectAll(values, "half of which the body has written")
  }
}

/// Writes a new key after every fifth existing one, and removes every seventh.
private func checkScansAmongOwnWrites(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let count = try await context.affordableCount(2_500, of: "keys", by: wayOfTransactions)
  let stored = keys(try await context.affordableCount(count, of: "keys"))
  try await engine.write(entries(stored))
  context.noteProgress()
  let new = stored.indices.filter { $0 % 5 == 0 }.map { CacheKey(verbatim: stored[$0].value + "+") }
  let gone = Set(stored.indices.filter { $0 % 7 == 3 }.map { stored[$0] })
  let left = entries((stored.filter { !gone.contains($0) } + new).sorted())
  try await engine.withTransaction { transaction in
    for key in new { try transaction.write(value(for: key), key: key) }
    for key in gone { try transaction.remove(key: key) }
    context.noteProgress()
    for limit in [nil, left.count * 2 / 3] {
      try expect(
        try transaction.scan(.all, limit: limit), are: Array(left.prefix(limit ?? .max)),
        "\(describe(.all, limit)) among writes of a body")
    }
    var last: CacheKey?
    for start in stride(from: 0, to: left.count, by: 400) {
      context.noteProgress()
      let page = try transaction.scan(KeyRange(after: last, upTo: nil), limit: 400)
      try expect(
        page, are: Array(left.dropFirst(start).prefix(400)), "a page of 400 entries among writes of a body")
      last = page.last?.key
    }
  }
}

/// Removes more entries at the beginning than a scan with a small limit would read, even if it read a few extra
/// entries.
private func checkScansBehindRemovals(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(try await context.affordableCount(1_500, of: "keys", by: wayOfTransactions))
  try await engine.write(entries(keys))
  let left: [CacheKey] = try await engine.withTransaction { transaction in
    var gone = 0
    for removals in [1, 10, 64, 100, 128, 256, 1_000, 1_400] where removals < keys.count {
      context.noteProgress()
      for key in keys[gone..<removals] { try transaction.remove(key: key) }
      gone = removals
      for limit in [1, 2, 10, 100] {
        try expect(
          try transaction.scan(.all, limit: limit), are: entries(Array(keys.dropFirst(gone).prefix(limit))),
          "after \(gone) removals by a body a scan up to \(limit) entries")
      }
    }
    // The same among the body's own writes.
    for key in keys.prefix(gone) { try transaction.write(value(for: key), key: key) }
    context.noteProgress()
    for key in keys[10..<max(10, gone - 5)] { try transaction.remove(key: key) }
    context.noteProgress()
    let left = keys.prefix(10) + keys.dropFirst(max(10, gone - 5))
    try expect(
      try transaction.scan(.all, limit: 20), are: entries(Array(left.prefix(20))),
      "after writes and removals by a body a scan up to 20 entries")
    return Array(left)
  }
  // A sample of the removed entries.
  let absent = Set(keys).subtracting(left).inByteOrder().enumerated().filter { $0.offset % 12 == 11 }
  try await expectStored(entries(left), absent: absent.map(\.element), in: engine)
}
