#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// A growing number of entries, none of which may be evicted.
struct ManyEntries {
  let context: CheckContext
  /// The number of entries in a batch, and the size of their values.
  let batchSize: Int
  let valueSize: Int

  /// Written with each batch, so that its last version comes after those in many earlier files or pages.
  private static let repeated = CacheKey(verbatim: "in each batch")

  func key(_ number: Int) -> CacheKey { CacheKey(verbatim: "entry \(number)") }

  /// Values that contain the number of their entry and otherwise zeros.
  func value(_ number: Int, version: Int = 1) -> Data {
    var value = data(version == 1 ? "\(number)\n" : "\(number), version \(version)\n")
    // In one step: there are a million of them.
    if value.count < valueSize { value.resetBytes(in: value.count..<valueSize) }
    return value
  }

  /// Writes one batch after the other, and fails if any entry is then missing or wrong.
  func run(_ rounds: RoundLimit) async throws {
    var engine = try await context.open()
    var (batches, lastLook) = (0, 0)
    var first: [StorageEntry] = []
    for _ in rounds {
      try await write(batches * batchSize..<(batches + 1) * batchSize, to: engine)
      batches += 1
      if batches == 1 {
        // If both times of an entry were equal, one could be mistaken for the other.
        try await letClockAdvance()
        try await engine.write(value(1), key: key(1))
        first = try await engine.readEntries(keys: (0..<3).map(key))
      }
      try await engine.write(data("batch \(batches)"), key: Self.repeated)
      let count = batches * batchSize
      if try await isMissing(count, in: engine) {
        throw try await smallest(after: count - batchSize, upTo: count)
      }
      if batches >= lastLook * 2 {
        try await look(count, in: engine)
        lastLook = batches
      }
    }
    let count = batches * batchSize
    try await look(count, in: engine)
    try await expectSameTimes(first, in: engine, "when there were \(count) entries")
    if context.capabilities.contains(.persistent) {
      // The last entries may not have been moved, merged or listed in the same way as the first ones.
      first += try await engine.readEntries(keys: [count / 2, count - 1].map(key))
      engine = try await context.reopen(engine)
      try await lookAgain(count, batches, in: engine)
      try await expectSameTimes(first, in: engine, "after reopening with \(count) entries")
    }
    try await engine.remove(key: Self.repeated)
    try await checkWholeCalls(count, in: engine)
  }

  /// Fails unless entries that were not written since have their previous times.
  private func expectSameTimes(
    _ entries: [StorageEntry], in engine: EngineUnderTest, _ when: String
  ) async throws {
    for before in entries {
      guard let after = try await engine.readEntries(keys: [before.key]).first else {
        throw Violation("\(when), readEntries(keys:) did not return \(before.key)", rule: .r6)
      }
      if before.createdAt.isAbout(after.createdAt), before.updatedAt.isAbout(after.updatedAt) { continue }
      throw Violation(
        "\(when), readEntries(keys:) returned other times for \(before.key) than before, although it had not "
          + "been written again", rule: .w2)
    }
  }

  /// Checks the entries after reopening: an index in a file may have space for only some of them.
  private func lookAgain(_ count: Int, _ batches: Int, in engine: EngineUnderTest) async throws {
    do {
      try expect(try await engine.keyCount(), is: count + 1, "keyCount()")
      try expect(
        try await engine.read(key: Self.repeated), is: data("batch \(batches)"),
        "read(key:) of a key that was written with each of \(batches) batches")
      try await look(count, in: engine)
    } catch let violation as Violation {
      throw Violation("after reopening, \(violation)", rule: .w6)
    }
    context.noteProgress()
  }

  private func write(_ numbers: Range<Int>, to engine: EngineUnderTest) async throws {
    try await engine.write(numbers.map { (key($0), value($0)) })
  }

  /// Whether one of this many entries, or the one that is written with each batch, is missing, according to methods that
  /// are cheap enough to call after each batch.
  private func isMissing(_ count: Int, in engine: EngineUnderTest) async throws -> Bool {
    if try await engine.keyCount() != count + 1 { return true }
    for number in [0, count / 2, count - 1] where try await engine.read(key: key(number)) != value(number) {
      return true
    }
    return false
  }

  /// Reads some of the entries, spread evenly over all, in a few calls.
  private func look(_ count: Int, in engine: EngineUnderTest) async throws {
    let step = max(1, count / 400)
    for start in stride(from: 0, to: count, by: step * 40) {
      let numbers = Array(stride(from: start, to: min(count, start + step * 40), by: step))
      let found = try await engine.readDataAndKeys(keys: numbers.map(key))
      try expect(
        found, are: numbers.map { (key($0), value($0)) }, "readDataAndKeys(keys:) of some of \(count) entries"
      )
    }
    try expect(
      try await engine.keysExist([key(0), key(count - 1)]), is: [key(0), key(count - 1)],
      "keysExist(_:) of the first and the last of \(count) entries")
  }

  /// Repeats the writes from a number of entries that was complete, one by one.
  private func smallest(after lastGood: Int, upTo end: Int) async throws -> Violation {
    let engine = try await context.open(context.root.appending(path: "again", directoryHint: .isDirectory))
    if lastGood > 0 { try await write(0..<lastGood, to: engine) }
    try await engine.write(data("again"), key: Self.repeated)
    for number in lastGood..<end {
      context.noteProgress()
      try await write(number..<number + 1, to: engine)
      if try await isMissing(number + 1, in: engine) {
        return violation(
          "the first \(number) entries were complete, and the first \(number + 1) were not", number + 1)
      }
    }
    return violation("\(lastGood) entries were complete, and \(end) were not", end)
  }

  private func violation(_ what: String, _ count: Int) -> Violation {
    Violation("\(what); together their values have \(count * valueSize) bytes")
  }
}
