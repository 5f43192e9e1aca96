#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// All methods that write accept the same arguments, with the same result: rules W1, W2, K1 and S8.

extension CheckDefinition {
  @CheckList static var wayChecks: [CheckDefinition] {
    Check(
      .w1, "ways.of-writing",
      "all methods that write accept the same keys and values, and all methods that read return them"
    ) { context in
      let ways = ChangeMethod.writing(context.capabilities).map(\.way) + waysOfWritingOne + [wayOfReplacing]
      for way in ways {
        let engine = try await openBeside(context, way.name)
        try await way.write(engine, assortment)
        context.noteProgress()
        try await expectStored(assortment, in: engine)
        context.noteProgress()
        try await expectAllWaysAgree(in: engine, on: assortment, noting: context.progress)
      }
    }
    Check(.w1, "ways.of-overwriting", "every method that writes replaces what any other has written") {
      context in
      let engine = try await context.open()
      let sizes = [0, 3, 70_000, 1, 5_000, 0, 100]
      var step = 0
      let ways = ChangeMethod.writing(context.capabilities).map(\.way) + waysOfWritingOne
      for first in ways {
        for second in ways {
          context.noteProgress()
          for way in [first, second] {
            step += 1
            let all = keys(5).enumerated().map { number, key in
              (key: key, data: noise(sizes[(step + number) % sizes.count], seed: UInt64(step)))
            }
            try await way.write(engine, all)
            try await expectStored(all, in: engine)
          }
        }
      }
      try await expectAllWaysAgree(in: engine)
    }
    Check(
      .w2, "ways.of-writing-and-times", "every method that writes sets createdAt once and updatedAt each time"
    ) { context in
      let engine = try await context.open()
      for way in waysOfWriting {
        let all = keys(4, prefix: way.name)
        let created = try await window { try await way.write(engine, entries(all)) }
        for second in waysOfWriting {
          try await letClockAdvance()
          let updated = try await window { try await second.write(engine, entries(all, version: 2)) }
          for key in all { try await expect(created: created, updated: updated, key, in: engine) }
        }
      }
      try await expectAllWaysAgree(in: engine)
    }
    Check(
      .r6, "ways.of-writing-and-order",
      "every method that writes adds new entries at the end and keeps the position of existing ones"
    ) { context in
      let engine = try await context.open()
      var order: [CacheKey] = []
      for (number, way) in waysOfWriting.enumerated() {
        for (later, other) in waysOfWriting.enumerated() {
          let new = key("\(9 - number) \(9 - later)")
          try await way.write(engine, entries([new]))
          try await letClockTick()
          order.append(new)
          try await other.write(engine, entries([order[order.count / 2]], version: 2))
          try await letClockTick()
        }
      }
      try expect(try await engine.readAllEntries().map(\.key), is: order, "the keys of readAllEntries()")
    }
    Check(
      .w1, "ways.of-changing-what-was-asked",
      "after every kind of change, every method that reads returns the new state, even for a request that it "
        + "has answered before"
    ) { try await checkQuestions($0) }
    Check(
      .k1, "ways.of-refusing",
      "all methods that write, read or remove reject the same keys with the same error"
    ) { context in
      let engine = try await context.open()
      try await engine.write(data("v"), key: key("kept"))
      for length in [0, 512, 513, 1_000, 1_024, 65_536, 66_000] {
        let bad = key(String(repeating: "k", count: length))
        for way in waysOfWriting {
          try await expectError(.invalidKey, from: "\(way.name) with a key of \(length) bytes") {
            try await way.write(engine, [(bad, data("v"))])
          }
        }
        try await expectError(.invalidKey, from: "apply(_:) of a removal of \(length) bytes") {
          try await engine.apply([.write(data("v"), key: key("kept")), .remove(key: bad)])
        }
        try await expectAllWaysAgree(in: engine, on: [(key("kept"), data("v"))])
      }
    }
    Check(
      .s8, "ways.of-storing",
      "inserting items one by one, together and in a chain leaves the same entries in the engine"
    ) { try await checkWaysOfStoring($0) }
  }
}

/// Calls every method that reads, changes something, and calls them again.
private func checkQuestions(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(6)
  func writes(_ places: Range<Int>, _ version: Int) -> [StorageOperation] {
    keys[places].map { .write(value(for: $0, version: version), key: $0) }
  }
  var changes: [(method: ChangeMethod, operations: [StorageOperation])] = []
  for (number, method) in [ChangeMethod.write, .writeMany, .apply, .writeEntries].enumerated() {
    // Overwrites existing entries and adds absent ones.
    changes.append((method, writes(0..<(method.isOfOneKey ? 1 : number + 2), number + 1)))
    changes.append((method, writes(number..<number + 1, 10 + number)))
  }
  changes += [
    (.remove, [.remove(key: keys[0])]), (.removeMany, [.remove(key: keys[1]), .remove(key: keys[2])]),
    (.apply, [.remove(key: keys[3])] + writes(1..<3, 20)),
    (.removeAll, [.removeAll]), (.writeEntries, writes(2..<5, 21)),
  ]
  if context.capabilities.contains(.transactions) {
    changes += [
      (.transaction, writes(2..<6, 22)), (.transaction, [.remove(key: keys[2])] + writes(0..<1, 23)),
      (.transaction, [.removeAll] + writes(3..<4, 24)), (.writeEntries, writes(0..<4, 25)),
      (.transaction, [.removeAll]),
    ]
  }
  var expected = ExpectedAnswers()
  expected.absent = Set(keys.map(\.value))
  for (number, (method, operations)) in changes.enumerated() {
    try await expected.verify(engine, first: number, blamesMethods: true)
    // So that the change has different times.
    try await letClockAdvance()
    try await method.perform(operations, in: engine)
    expected.apply(operations)
    do {
      try await expected.verify(engine, first: number, blamesMethods: true)
      try await expectAllWaysAgree(in: engine, noting: context.progress)
      context.noteProgress()
    } catch let violation as Violation {
      throw Violation(
        "after \(method.call), with the same requests as before, \(violation)", rule: violation.rule)
    }
  }
}

/// An engine in a separate directory for each name.
private func openBeside(_ context: CheckContext, _ name: String) async throws -> EngineUnderTest {
  let directory = "place of \(name.filter { $0.isLetter })-\(name.count)"
  return try await context.open(context.root.appending(path: directory, directoryHint: .isDirectory))
}

/// Keys and values of every kind and size.
private let assortment: [(key: CacheKey, data: Data)] = {
  let names = AdversarialKeys.all.enumerated().filter { $0.offset % 4 == 1 }.map(\.element)
  let sizes = [0, 1, 127, 128, 255, 256, 4_096, 65_535, 65_536, 65_537, 300_000]
  let lengths = [1, 63, 64, 127, 128, 250, 255, 256, 257, 510, 511]
  return names.enumerated().map { (key: $0.element, data: noise($0.offset * 13, seed: 3)) }
    + sizes.map { (key: key("size \($0)"), data: noise($0, seed: UInt64($0))) }
    + lengths.map { (key: key(String(repeating: "n", count: $0)), data: noise($0, seed: 4)) }
}()

@MainActor private func checkWaysOfStoring(_ context: CheckContext) async throws {
  let long = String(repeating: "long ", count: 300)
  let items =
    (["", "\0", "a", "é", "e\u{301}", "..", "../x", long, long + "x"] + (0..<30).map { "item \($0)" })
    .map { CheckedItem($0) }
  var found: [(way: String, entries: [CacheKey: [UInt8]])] = []
  for way in ["insertions of one item", "an insertion of many", "a chain"] {
    let fixture = StoreFixture(context, try await openBeside(context, way))
    try await fixture.load()
    switch way {
    case "a chain": try await fixture.run(items.map { .insert([$0]) })
    case "an insertion of many": try await fixture.perform(.insert(items))
    default: for item in items { try await fixture.insert(item) }
    }
    try expectSame(fixture.store.items, items, "the items after \(way)")
    var entries: [CacheKey: [UInt8]] = [:]
    for entry in try await fixture.engineUnderTest.readAllDataAndKeys() {
      entries[entry.key] = Array(entry.data)
    }
    found.append((way, entries))
  }
  for (way, entries) in found.dropFirst() {
    try expect(
      Set(entries.keys) == Set(found[0].entries.keys),
      "\(way) left \(entries.count) entries under other keys than \(found[0].way), which left \(found[0].entries.count)"
    )
    for (key, bytes) in entries where bytes.count != found[0].entries[key]?.count {
      throw Violation("the entry of \(key) differs between \(way) and \(found[0].way)")
    }
  }
}
