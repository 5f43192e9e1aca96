#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Faults that only appear after many writes: rules W1 and O4.

extension CheckDefinition {
  @CheckList static var manyEntriesChecks: [CheckDefinition] {
    Check(
      .w1, "write.beyond-10000-entries",
      "a batch of 10,400 entries stores all of them, and does not affect earlier and later writes"
    ) { context in
      let engine = try await context.open()
      let keys = keys(try await context.affordableCount(10_400, of: "entries"))
      try await engine.write(entries(keys))
      context.noteProgress()
      try await engine.write(data("later"), key: key("later"))
      try await expectStored([(key("later"), data("later"))] + entries(keys), in: engine)
      context.noteProgress()
      try await engine.remove(keys: keys)
      context.noteProgress()
      try await expectStored([(key("later"), data("later"))], absent: keys, in: engine)
    }
    Check(
      .w1, "write.hundreds-of-versions",
      "after hundreds of writes of one key, a read returns the last one"
    ) {
      context in
      let engine = try await context.open()
      for version in 1...300 {
        try await engine.write(value(for: key("k"), version: version), key: key("k"))
        guard version % 32 < 2 || (254...260).contains(version) || version == 300 else { continue }
        let found = try await engine.read(key: key("k"))
        try expect(
          found, is: value(for: key("k"), version: version), "after write \(version) of a key, read(key:)")
      }
    }
    Check(
      .o4, "calls.leave-no-file-open",
      "the number of files that the engine has open does not grow with every call",
      needs: .persistent
    ) { context in
      let engine = try await context.open()
      try await engine.write(entries(keys(20)))
      var counts: [Int] = []
      let start = ContinuousClock.now
      for _ in 0..<4 {
        for round in 0..<25 {
          try await callEverything(engine, round)
          context.noteProgress()
          guard ContinuousClock.now - start > .seconds(60), round < 24 || counts.count < 3 else { continue }
          return context.noteShortfall("\(counts.count * 25 + round + 1) of 100 calls of every method")
        }
        counts.append(System.openFiles(in: context.root).count)
      }
      try expect(
        !(1..<4).allSatisfy { counts[$0] >= counts[$0 - 1] + 20 },
        "after 25, 50, 75 and 100 calls of every method, the numbers of open files were \(counts)")
    }
  }
}

/// Calls each method once, with few and small values.
private func callEverything(_ engine: EngineUnderTest, _ round: Int) async throws {
  let keys = keys(20)
  for method in ReadMethod.allCases {
    _ = try await method.found(of: method.isOfOneKey ? [keys[round % 20]] : keys, in: engine)
  }
  _ = try await engine.scan(.all, limit: 3)
  for method in ChangeMethod.all(engine.capabilities) {
    let changed = method.isOfOneKey ? [keys[round % 20]] : [keys[4], keys[5]]
    try await method.perform(entries(changed, version: round), in: engine)
  }
  try await wayOfReplacing.write(engine, entries(keys))
  try await engine.verify()
  try await engine.remove(keys: [key("absent"), key("absent too")])
}
