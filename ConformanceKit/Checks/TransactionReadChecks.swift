#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// A body reads its own writes: rule T2. What becomes of them is as if they had been made by a batch.

extension CheckDefinition {
  @CheckList static var transactionReadChecks: [CheckDefinition] {
    for read in ReadInBody.all {
      Check(
        .t2, "transactions.own-writes-in-\(read.id)",
        "\(read.name) of a transaction sees what its body has written and removed", needs: .transactions
      ) { try await checkOwnWrites($0, read) }
    }
    Check(
      .t2, "transactions.times-and-order",
      "an overwrite in a transaction keeps createdAt and the entry's place, and a removal before a write renews both",
      needs: .transactions
    ) { try await checkTimes($0) }
  }
}

/// One kind of read that a transaction has, compared with what there must be.
private struct ReadInBody: Sendable {
  let id: String
  let name: String
  let compare: @Sendable (any StorageTransaction, [CacheKey: Data]) throws -> Void

  /// Keys that there are, that were, and that never were.
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
      try expect(try transaction.scan(.all, limit: 0), are: [], "scan(.all) up to 0 entries")
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

/// What bodies do, one change after the other.
private let changesInBodies: [[StorageOperation]] = [
  // Beside what there is.
  [
    .write(data("new"), key: key("e")), .write(data("overwritten"), key: key("b")), .remove(key: key("c")),
    .remove(key: key("d")), .write(data("again"), key: key("d")), .remove(key: key("z")),
    .write(data("passing"), key: key("f")), .remove(key: key("f")), .write(Data(), key: key("a")),
    .write(data("and again"), key: key("d")),
  ],
  // In place of it.
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

private func checkTimes(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let names = ["renewed", "overwritten", "untouched", "removed"]
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
      // Neither is a removal of what the body has written.
      try transaction.write(data("passing"), key: key("passing"))
      try transaction.remove(key: key("passing"))
    }
  }
  let found = try await engine.readAllEntries()
  try expect(
    found.map(\.key.value), is: ["overwritten", "untouched", "new, z", "renewed", "new, a"],
    "the order of readAllEntries() after a transaction")
  for entry in found {
    let before = old[entry.key]
    if entry.key == key("renewed") || before == nil {
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
