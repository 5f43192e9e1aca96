#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Faults that only calls about all of many entries show: a truncated list, a batch or a removal that is too large.

extension ManyEntries {
  /// The maximum total size of values to copy.
  private static let mostBytesRead = 256 << 20
  /// The maximum total size of values to write as one batch.
  private static let mostBytesWritten = 132 << 20

  /// Compares all methods that read everything, overwrites all entries by one batch and removes them by one call,
  /// unless that takes the engine too long.
  func checkWholeCalls(_ count: Int, in engine: EngineUnderTest) async throws {
    let seconds = context.byLevel(quick: 1.0, standard: 5.0, exhaustive: 5.0)
    let affordable = try await context.affordableEntries(within: seconds)
    guard count <= affordable.reads / 2, count <= affordable.writes else {
      if context.shortfall == nil { context.noteShortfall("\(count) entries, and no call about all of them") }
      return
    }
    guard count * valueSize <= Self.mostBytesRead else {
      if context.shortfall == nil {
        context.noteShortfall("\(count) entries, and no call that returns or overwrites all of them")
      }
      return try await removeEverything(in: engine)
    }
    let keys = (0..<count).map(key)
    let sorted = keys.indices.sorted { keys[$0] < keys[$1] }
    try await expectListed(keys, sorted, version: 1, in: engine)
    try await blaming(.f2) { try await engine.verify() }
    if count * valueSize <= Self.mostBytesWritten {
      try await blaming(.w5) {
        try await engine.apply(keys.indices.map { .write(value($0, version: 2), key: keys[$0]) })
        for number in Array(stride(from: 0, to: count, by: max(1, count / 200))) + [count - 1] {
          try expect(
            try await engine.read(key: keys[number]) == value(number, version: 2),
            "read(key:) of \(keys[number]) did not return the value that an apply(_:) of \(count) writes had "
              + "stored")
        }
      }
      try await expectListed(keys, sorted, version: 2, in: engine)
    }
    try await removeEverything(in: engine)
  }

  private func removeEverything(in engine: EngineUnderTest) async throws {
    try await blaming(.d2) {
      try await engine.removeAllData()
      try await expectEmpty(engine)
    }
  }

  /// Compares one list after the other, so that no two of them hold copies of all values at the same time.
  ///
  /// - Parameters:
  ///   - keys: In the order in which they were first written.
  ///   - sorted: The indices of the keys in byte order.
  private func expectListed(
    _ keys: [CacheKey], _ sorted: [Int], version: Int, in engine: EngineUnderTest
  ) async throws {
    try await blaming(.k3) {
      try expect(try await engine.allKeys(), areInAnyOrder: keys, "allKeys()")
    }
    try await blaming(.r3) {
      let pairs = try await engine.readAllDataAndKeys().sorted { $0.key < $1.key }
      try expectEntries(pairs, of: sorted[...], version, "readAllDataAndKeys(), sorted,")
    }
    try await blaming(.r3) {
      let values = try await engine.readAllData()
      try expect(values.count, is: keys.count, "the number of values of readAllData()")
      // No two entries have equal values.
      let found = Set(values)
      try expect(
        sorted.allSatisfy { found.contains(value($0, version: version)) },
        "readAllData() returned other values than those of the \(keys.count) entries")
    }
    try await blaming(.r6) {
      let entries = try await engine.readAllEntries()
      let pairs = entries.map { (key: $0.key, data: $0.data) }.sorted { $0.key < $1.key }
      try expectEntries(pairs, of: sorted[...], version, "readAllEntries(), sorted,")
      let isExact = context.capabilities.contains(.atomicBatches)
      try expectOrder(of: entries, keys, isExact: isExact)
    }
    try await blaming(.r6) {
      let pairs = try await engine.readEntries(keys: keys).map { (key: $0.key, data: $0.data) }
      try expectEntries(
        pairs.sorted { $0.key < $1.key }, of: sorted[...], version, "readEntries(keys:), sorted,")
    }
    try await blaming(.l1) {
      try expect(try await engine.keysExist(keys), is: keys, "keysExist(_:) of all keys")
    }
    for limit in [nil, keys.count - 1] {
      try await blaming(.r5) {
        let found = try await engine.scan(.all, limit: limit)
        try expectEntries(found, of: sorted.prefix(limit ?? .max), version, describe(.all, limit))
      }
    }
  }

  /// Fails unless these are the entries with these numbers, in that order.
  private func expectEntries(
    _ found: [(key: CacheKey, data: Data)], of numbers: ArraySlice<Int>, _ version: Int, _ what: String
  ) throws {
    try expect(found.count, is: numbers.count, "the number of entries of \(what)")
    for (entry, number) in zip(found, numbers) {
      try expect(entry.key, is: key(number), "a key of \(what)")
      try expect(
        entry.data == value(number, version: version), "\(what) returned another value for \(entry.key)")
    }
  }

  /// Assigns failures of a call to a rule.
  private func blaming(_ rule: ContractRule, _ call: () async throws -> Void) async throws {
    do {
      try await call()
    } catch let failure as CallFailure {
      throw Violation("\(failure)", rule: rule)
    } catch let violation as Violation {
      throw Violation(violation.description, rule: rule)
    }
    context.noteProgress()
  }
}
