#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Values and batches of any number of bytes: rules V2 and W1.

extension CheckDefinition {
  @CheckList static var byteSizeChecks: [CheckDefinition] {
    Check(
      .v2, "sizes.bytes-of-a-value",
      "every method that writes accepts values of any size up to 64 MiB, and every method that reads returns "
        + "them"
    ) { context in
      let engine = try await context.open()
      var ways = ChangeMethod.writing(context.capabilities).map(\.way)
      // Without atomic batches, a call may be refused after the removal has been made.
      if context.capabilities.contains(.atomicBatches) { ways.append(wayOfReplacing) }
      try await context.checkByteSizes(in: engine) { engine, size in
        for (number, way) in ways.enumerated() {
          // Large values are read in every way only once.
          try await expectValue(of: size, by: way, readByAll: size <= 1 << 20 || number == 2, in: engine)
        }
      }
      for mebibytes in context.byLevel(quick: [1], standard: [1, 5], exhaustive: [1, 5, 20]) {
        for way in ways {
          try await expectNothingLeft(of: (mebibytes << 20) + 1, by: way, in: engine)
          context.noteProgress()
        }
        try await expectShortened(from: (mebibytes << 20) + 1, in: engine)
        context.noteProgress()
      }
    }
    Check(
      .w1, "sizes.bytes-of-a-batch",
      "a batch of any number of bytes stores all of them, and every method that reads returns them"
    ) { context in
      let engine = try await context.open()
      try await context.checkByteSizes(in: engine) { engine, size in
        var batch: [(key: CacheKey, data: Data)] = []
        var ways = [wayOfImporting, wayOfBatches, wayOfApplying]
        if context.capabilities.contains(.transactions) { ways.insert(wayOfTransactions, at: 0) }
        for (number, way) in ways.enumerated() {
          batch = parts(of: size, seed: UInt64(size + number))
          try await way.write(engine, batch)
          for (key, data) in batch {
            try expect(
              try await engine.read(key: key) == data,
              "read(key:) did not return the \(data.count) bytes that \(way.name) had stored")
          }
        }
        // Comparing copies of the largest batches in every way would take too much memory.
        if size <= 64 << 20 { try await expectAllWaysAgree(in: engine, on: batch) }
      }
    }
    Check(
      .v2, "sizes.bytes-of-an-entry",
      "a value is returned as written, whether key and value just fit into a page, a block or a cell or are "
        + "slightly too large"
    ) { context in
      let engine = try await context.open()
      let affordable = min(50, max(4, try await context.affordableEntries().writes / 20))
      if affordable < 50 { context.noteShortfall("\(affordable) of 50 sizes below each page") }
      for page in [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384] {
        context.noteProgress()
        for length in [1, 100, CacheKey.maximumLength] {
          // The engine uses some bytes of a page for itself.
          let written = (0..<affordable).map { number in
            let rest = number * 50 / affordable
            let name = String(repeating: "k", count: max(0, length - 3)) + "\(rest)"
            // The key alone may fill a small page.
            let size = max(rest, page + 1 - rest - name.utf8.count)
            return (key: key(name), data: noise(size, seed: UInt64(page + rest)))
          }
          try await engine.write(written)
          let found = try await engine.readDataAndKeys(keys: written.map(\.key))
          try expect(found.map(\.key), is: written.map(\.key), "the keys of readDataAndKeys(keys:)")
          for (found, (key, data)) in zip(found, written) where found.data != data {
            throw Violation(
              "readDataAndKeys(keys:) did not return the \(data.count) bytes that had been stored under a key of "
                + "\(key.value.utf8.count)")
          }
        }
      }
    }
    Check(
      .v2, "sizes.too-large-by-every-way",
      "all methods that write agree on a value of more than 64 MiB: they accept it, or throw valueTooLarge",
      from: .standard
    ) { context in
      let engine = try await context.open()
      let sizes =
        context.budget.level == .exhaustive ? [(64 << 20) + 1, 100 << 20, 256 << 20] : [(64 << 20) + 1]
      for size in sizes { try await expectSameOutcome(on: size, in: engine) }
    }
  }
}

extension CheckContext {
  /// Runs the check at each size of the ladder. After a failure, it searches for the smallest size that fails. It uses
  /// the same engine and overwrites its entries.
  fileprivate func checkByteSizes(
    in engine: EngineUnderTest, _ ask: (EngineUnderTest, Int) async throws -> Void
  ) async throws {
    func violation(at size: Int) async throws -> Violation? {
      noteProgress()
      do {
        try await ask(engine, size)
        return nil
      } catch let violation as Violation {
        return violation
      } catch let failure as CallFailure {
        return Violation("\(failure)")
      }
    }
    var reached = 0
    for size in SizeLadder(budget.level).bytes {
      guard var found = try await violation(at: size) else {
        reached = size
        continue
      }
      var (low, high) = (reached, size)
      while high - low > 1 {
        let middle = low + (high - low) / 2
        if let smaller = try await violation(at: middle) {
          (high, found) = (middle, smaller)
        } else {
          low = middle
        }
      }
      let good = low == 0 ? "" : "no failure with \(low) bytes; "
      throw Violation("\(good)with \(high) bytes \(found)", rule: found.rule)
    }
  }
}

/// Sixteen entries whose values have this many bytes in total.
private func parts(of size: Int, seed: UInt64) -> [(key: CacheKey, data: Data)] {
  (0..<16).map { number in
    (key("part \(number)"), noise(size * (number + 1) / 16 - size * number / 16, seed: seed + UInt64(number)))
  }
}

/// Overwrites a small value with one of this many bytes and reads it in every way.
private func expectValue(
  of size: Int, by way: WayOfWriting, readByAll: Bool, in engine: EngineUnderTest
) async throws {
  let (key, value) = (key("value"), noise(size, seed: UInt64(size)))
  try await engine.write(data("earlier"), key: key)
  do {
    try await way.write(engine, [(key, value)])
  } catch let failure as CallFailure {
    guard size > 64 << 20, (failure.error as? StorageError)?.code == .valueTooLarge else { throw failure }
    return try await expectAllWaysAgree(in: engine, on: [(key, data("earlier"))])
  }
  try expect(
    try await engine.read(key: key) == value,
    "read(key:) did not return the value that \(way.name) had stored")
  guard readByAll else { return }
  for (method, values) in try await everyRead(of: [key], in: engine) {
    try expect(values == [value], "\(method) did not return the value that \(way.name) had stored")
  }
}

/// Overwrites a value of this many bytes with a short one, removes such a value, and writes a short one under its key.
/// An engine may keep long values in several parts.
private func expectNothingLeft(of size: Int, by way: WayOfWriting, in engine: EngineUnderTest) async throws {
  let (key, long, short) = (key("value"), noise(size, seed: UInt64(size)), data("short"))
  func expectShort(_ when: String) async throws {
    for (method, values) in try await everyRead(of: [key], in: engine) where values != [short] {
      throw Violation("\(when), \(method) did not return the short value alone")
    }
    try expect(try await engine.allKeys(), is: [key], "\(when), allKeys()")
  }
  try await way.write(engine, [(key, long)])
  try await way.write(engine, [(key, short)])
  try await expectShort("after \(way.name) of a short value over one of \(size) bytes")
  try await way.write(engine, [(key, long)])
  try await engine.remove(key: key)
  do {
    try await expectEmpty(engine)
  } catch let violation as Violation {
    throw Violation(
      "after the removal of a value of \(size) bytes, written by \(way.name), \(violation)",
      rule: violation.rule)
  }
  try await way.write(engine, [(key, short)])
  try await expectShort("after \(way.name) of a short value where one of \(size) bytes had been removed")
}

/// Overwrites a value of this many bytes with shorter ones whose sizes are powers of two: an engine that keeps values in several parts
/// may fill the last one, and then go on reading.
private func expectShortened(from size: Int, in engine: EngineUnderTest) async throws {
  let (key, long) = (key("shortened"), noise(size, seed: UInt64(size)))
  for short in (12...20).map({ noise(1 << $0, seed: UInt64($0)) }) {
    try await engine.write(long, key: key)
    try await engine.write(short, key: key)
    let found = try await engine.read(key: key)
    if found == short { continue }
    throw Violation(
      "after a write of \(short.count) bytes over \(size) bytes, read(key:) did not return those \(short.count) bytes, but "
        + (found.map { "\($0.count) bytes" } ?? "nil"))
  }
}

/// Writes a value in every way: either all accept it, or all refuse it and leave the previous value.
private func expectSameOutcome(on size: Int, in engine: EngineUnderTest) async throws {
  let value = noise(size)
  var outcomes: [(name: String, isAccepted: Bool)] = []
  for way in ChangeMethod.writing(engine.capabilities).map(\.way) {
    try await engine.write(data("earlier"), key: key("k"))
    do {
      try await way.write(engine, [(key("k"), value)])
      outcomes.append((way.name, true))
      try expect(
        try await engine.read(key: key("k")) == value,
        "\(way.name) stored a value of \(size) bytes that was different when read")
    } catch let failure as CallFailure {
      guard (failure.error as? StorageError)?.code == .valueTooLarge else {
        throw Violation("with a value of \(size) bytes, \(failure), not valueTooLarge")
      }
      outcomes.append((way.name, false))
      try await expectAllWaysAgree(in: engine, on: [(key("k"), data("earlier"))])
    }
  }
  let (accepting, refusing) = (outcomes.filter(\.isAccepted), outcomes.filter { !$0.isAccepted })
  try expect(
    accepting.isEmpty || refusing.isEmpty,
    "a value of \(size) bytes was accepted by \(accepting.map(\.name).joined(separator: ", ")) and refused by "
      + refusing.map(\.name).joined(separator: ", "))
  try await engine.removeAllData()
}
