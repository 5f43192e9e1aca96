#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Calls that are cancelled beside many others: rule C4.

extension CheckDefinition {
  @CheckList static var cancelledCrowdChecks: [CheckDefinition] {
    Check(
      .c4, "crowd.a-thousand-cancelled-calls",
      "after a thousand calls that were cancelled while many waited, 300 tasks can use the engine as before"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(
        quick: 10, standard: 25, exhaustive: 250, of: "rounds of 40 cancelled calls")
      for round in rounds { try await cancelSome(engine, round) }
      try await useByMany(context, engine)
    }
    Check(
      .c4, "crowd.cancelled-beside-others",
      "a call that is not cancelled does not throw because another was, for the same key or in the same moment"
    ) { context in
      let engine = try await context.open()
      let rounds = context.rounds(quick: 12, standard: 60, exhaustive: 1_000, of: "rounds of 40 calls")
      for round in rounds { try await cancelOneOfMany(engine, round) }
    }
  }
}

/// Begins 40 calls, and cancels all of them a little later. None may do anything but its work or nothing.
private func cancelSome(_ engine: EngineUnderTest, _ round: Int) async throws {
  let tasks = (0..<40).map { number in
    Task { @concurrent in
      switch number % 4 {
      case 0: try await engine.write(data("cancelled"), key: key("cancelled-\(number)"))
      case 1: _ = try await engine.read(key: key("hot"))
      case 2: try await engine.apply([.write(data("cancelled"), key: key("cancelled-\(number)"))])
      default: _ = try await engine.readAllDataAndKeys()
      }
    }
  }
  for _ in 0..<round % 7 { await Task.yield() }
  for task in tasks { task.cancel() }
  for task in tasks {
    // What a cancelled call may throw is for another check to say.
    _ = await task.result
  }
}

/// Reads of many keys, which many tasks may share. Each returns whether it has found the hot key.
private let sharedReads: [(name: String, read: @Sendable (EngineUnderTest) async throws -> Bool)] = [
  ("readAllDataAndKeys()", { try await $0.readAllDataAndKeys().contains { $0.key == key("hot") } }),
  ("allKeys()", { try await $0.allKeys().contains(key("hot")) }),
  ("scan(.all)", { try await $0.scan(.all, limit: nil).contains { $0.key == key("hot") } }),
  ("read(keys:)", { try await $0.read(keys: [key("hot"), key("absent")]) == [data("hot")] }),
]

/// Begins reads of one key and of many, and writes, in the same moment, and cancels the first of each.
private func cancelOneOfMany(_ engine: EngineUnderTest, _ round: Int) async throws {
  let hot = key("hot")
  try await engine.write(data("hot"), key: hot)
  let reads = (0..<20).map { _ in Task { @concurrent in try await engine.read(key: hot) } }
  let writes = (0..<20).map { number in
    Task { @concurrent in try await engine.write(data("round \(round)"), key: key("beside-\(number)")) }
  }
  let largeReads = (0..<20).map { number in
    Task { @concurrent in try await sharedReads[number % sharedReads.count].read(engine) }
  }
  for _ in 0..<round % 5 { await Task.yield() }
  for read in largeReads.prefix(sharedReads.count) { read.cancel() }
  for cancelled in [0, 7] {
    reads[cancelled].cancel()
    writes[cancelled].cancel()
  }
  for (number, read) in reads.enumerated() where number != 0 && number != 7 {
    try expect(try await read.value, is: data("hot"), "read(key:) beside one that was cancelled")
  }
  for (number, write) in writes.enumerated() where number != 0 && number != 7 {
    try await write.value
    try expect(
      try await engine.read(key: key("beside-\(number)")), is: data("round \(round)"),
      "read(key:) of what was written beside a write that was cancelled")
  }
  for (number, read) in largeReads.enumerated().dropFirst(sharedReads.count) {
    let name = sharedReads[number % sharedReads.count].name
    try expect(
      try await read.value, "\(name) beside one that was cancelled did not have a key that was there")
  }
  _ = await (reads[0].result, reads[7].result, writes[0].result, writes[7].result)
  for read in largeReads.prefix(sharedReads.count) { _ = await read.result }
}
