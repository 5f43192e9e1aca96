#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Batches: rules W3 to W5.

extension CheckDefinition {
  @CheckList static var batchChecks: [CheckDefinition] {
    Check(
      .w3, "batches.later-entry-wins", "a batch stores the last of several entries for one key"
    ) {
      context in
      let engine = try await context.open()
      let (a, b) = (key("a"), key("b"))
      try await engine.write([(a, data("1")), (b, data("2")), (a, data("3")), (a, data("4"))])
      try await expectStored([(a, data("4")), (b, data("2"))], in: engine)
      try await engine.write([(a, data("longer than before")), (a, data(""))])
      try expect(try await engine.read(key: a), is: data(""), "read(key:)")
    }
    Check(.w3, "batches.empty", "an empty batch changes nothing and does not throw") { context in
      let engine = try await context.open()
      for _ in 0..<2 {
        let before = Set(try await engine.readAllEntries())
        try await engine.write([])
        try await engine.remove(keys: [])
        try await engine.apply([])
        let after = Set(try await engine.readAllEntries())
        try expect(after == before, "empty batches changed the entries of readAllEntries()")
        try await engine.write(entries(keys(3)))
      }
    }
    Check(
      .w3, "batches.later-entry-wins-far-apart",
      "a batch stores the last of several entries for one key, even with thousands of others between them"
    ) { context in
      let engine = try await context.open()
      let keys = keys(try await context.affordableCount(2_700, of: "entries of a batch") / 3)
      try await engine.write((1...3).flatMap { entries(keys, version: $0) } + entries([keys[0]], version: 4))
      let last = entries([keys[0]], version: 4) + entries(Array(keys.dropFirst()), version: 3)
      try await expectStored(last, in: engine)
    }

    for position in [0, 5, 10] {
      for (name, bad) in [("empty", key("")), ("long", key(String(repeating: "k", count: 512)))] {
        Check(
          .w4, "batches.\(name)-key-at-\(position)-rejects-all",
          "an invalid key at position \(position) rejects the whole batch, and nothing is written"
        ) { context in
          try await checkRejection(of: bad, at: position, in: try await context.open())
        }
      }
    }
    Check(.w5, "apply.keeps-the-order", "the operations of apply(_:) take effect in the order given") {
      context in
      let engine = try await context.open()
      let (a, b, c, d) = (key("a"), key("b"), key("c"), key("d"))
      try await engine.write(entries([a, b, c]))
      try await engine.apply([
        .write(data("1"), key: a), .remove(key: a),
        .remove(key: b), .write(data("2"), key: b),
        .write(data("3"), key: c), .write(data("4"), key: c),
        .write(data("5"), key: d), .remove(key: d), .write(data("6"), key: d),
      ])
      try await expectStored([(b, data("2")), (c, data("4")), (d, data("6"))], absent: [a], in: engine)
    }
    Check(
      .w5, "apply.removes-all-in-place",
      "removeAll within apply(_:) removes what came before it and nothing after"
    ) { context in
      let engine = try await context.open()
      try await engine.write(entries(keys(5)))
      try await engine.apply([
        .write(data("before"), key: key("before")), .removeAll, .write(data("after"), key: key("after")),
      ])
      try await expectStored([(key("after"), data("after"))], absent: keys(5) + [key("before")], in: engine)
      try await engine.apply([.write(data("v"), key: key("k")), .removeAll])
      try await expectStored([], absent: [key("k"), key("after")], in: engine)
      try await engine.apply([.removeAll, .write(data("1"), key: key("k")), .removeAll, .removeAll])
      try await expectStored([], absent: [key("k")], in: engine)
    }
    Check(
      .w5, "apply.removes-all-at-any-place",
      "removeAll takes effect in order, at any position in apply(_:)"
    ) { context in
      let engine = try await context.open()
      let (a, b, c) = (key("a"), key("b"), key("c"))
      let others: [StorageOperation] = [
        .write(data("1"), key: a), .write(data("2"), key: b), .remove(key: a), .write(data("3"), key: c),
        .write(data("4"), key: b), .remove(key: c), .write(data("5"), key: a),
      ]
      for place in 0...others.count {
        try await engine.write(entries([a, b, c, key("old")]))
        try await engine.apply(others.prefix(place) + [.removeAll] + others.dropFirst(place))
        var expected: [CacheKey: Data] = [:]
        for operation in others.dropFirst(place) {
          switch operation {
          case .write(let data, let key): expected[key] = data
          case .remove(let key): expected[key] = nil
          case .removeAll: expected = [:]
          }
        }
        let absent = [a, b, c, key("old")].filter { expected[$0] == nil }
        try await expectStored(expected.map { ($0.key, $0.value) }, absent: absent, in: engine)
      }
    }
    Check(.w5, "apply.mixes-operations", "a long apply(_:) has the same result as its operations one by one")
    {
      context in
      let engine = try await context.open()
      let keys = keys(20)
      var expected: [CacheKey: Data] = [:]
      var operations: [StorageOperation] = []
      for step in 0..<500 {
        let key = keys[step * 7919 % 20]
        if step % 97 == 96 {
          operations.append(.removeAll)
          expected = [:]
        } else if step % 3 == 2 {
          operations.append(.remove(key: key))
          expected[key] = nil
        } else {
          operations.append(.write(data("\(step)"), key: key))
          expected[key] = data("\(step)")
        }
      }
      try await engine.apply(operations)
      let absent = keys.filter { expected[$0] == nil }
      try await expectStored(expected.map { ($0.key, $0.value) }, absent: absent, in: engine)
    }
  }
}

/// Hands batches with one invalid key to every method that takes batches.
private func checkRejection(of bad: CacheKey, at position: Int, in engine: EngineUnderTest) async throws {
  let (kept, new) = (keys(10, prefix: "kept-"), keys(10, prefix: "new-"))
  try await engine.write(entries(kept))

  func withBad<Element>(_ elements: [Element], _ bad: Element) -> [Element] {
    Array(elements.prefix(position)) + [bad] + Array(elements.dropFirst(position))
  }
  try await expectError(.invalidKey, from: "write(_:) of many") {
    try await engine.write(withBad(entries(new), (bad, data("bad"))))
  }
  try await expectStored(entries(kept), absent: new, in: engine)
  try await expectError(.invalidKey, from: "remove(keys:)") {
    try await engine.remove(keys: withBad(kept, bad))
  }
  try await expectStored(entries(kept), absent: new, in: engine)
  try await expectError(.invalidKey, from: "writeEntries(_:)") {
    try await engine.writeEntries(
      withBad(new, bad).map { StorageEntry(key: $0, data: data("e"), createdAt: Date(), updatedAt: Date()) })
  }
  try await expectStored(entries(kept), absent: new, in: engine)
  let operations = [.removeAll] + new.map { StorageOperation.write(data("new"), key: $0) }
  for operation in [StorageOperation.write(data("bad"), key: bad), .remove(key: bad)] {
    try await expectError(.invalidKey, from: "apply(_:)") {
      try await engine.apply(withBad(operations, operation))
    }
    try await expectStored(entries(kept), absent: new, in: engine)
  }
}
