#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Reading: rules R1 to R4.

extension CheckDefinition {
  @CheckList static var readChecks: [CheckDefinition] {
    Check(.r1, "reads.absent-is-nil", "reading an absent key returns nil and does not throw, by any method") {
      context in
      let engine = try await context.open()
      for what in ["a new engine", "an engine with other entries", "an engine that had the key"] {
        let absent = key("absent")
        try expect(try await engine.read(key: absent), is: nil, "read(key:) in \(what)")
        try expect(try await engine.keyExists(absent), is: false, "keyExists(_:) in \(what)")
        try expect(try await engine.createdAt(key: absent), is: nil, "createdAt(key:) in \(what)")
        try expect(try await engine.updatedAt(key: absent), is: nil, "updatedAt(key:) in \(what)")
        try expect(try await engine.read(keys: [absent]), is: [], "read(keys:) in \(what)")
        try await engine.write(data("v"), key: key("another"))
        try await engine.write(data("v"), key: absent)
        try await engine.remove(key: absent)
      }
    }
    Check(.r1, "reads.empty-engine", "every read of a new engine returns nothing and does not throw") {
      context in
      try await expectEmpty(try await context.open())
    }

    Check(.r2, "reads.order-of-the-request", "reads of many keys return results in the order of the request")
    {
      context in
      let engine = try await context.open()
      let keys = keys(60)
      try await engine.write(entries(keys))
      let orders = [keys, keys.reversed(), (0..<60).map { keys[$0 * 37 % 60] }]
      for order in orders {
        try expect(try await engine.read(keys: order), is: order.map { value(for: $0) }, "read(keys:)")
        try expect(
          try await engine.readDataAndKeys(keys: order), are: entries(order), "readDataAndKeys(keys:)")
      }
    }
    Check(.r2, "reads.repeats", "a key that is requested twice is returned twice") { context in
      let engine = try await context.open()
      let (a, b) = (key("a"), key("b"))
      try await engine.write(entries([a, b]))
      let request = [a, b, a, a, b]
      try expect(try await engine.read(keys: request), is: request.map { value(for: $0) }, "read(keys:)")
      try expect(
        try await engine.readDataAndKeys(keys: request), are: entries(request), "readDataAndKeys(keys:)")
    }
    Check(
      .r2, "reads.leave-absent-keys-out",
      "absent keys are omitted, and the rest stays in order"
    ) {
      context in
      let engine = try await context.open()
      let keys = keys(20)
      let present = keys.enumerated().filter { $0.offset % 3 == 1 }.map(\.element)
      try await engine.write(entries(present))
      try expect(try await engine.read(keys: keys), is: present.map { value(for: $0) }, "read(keys:)")
      try expect(
        try await engine.readDataAndKeys(keys: keys), are: entries(present), "readDataAndKeys(keys:)")
      try expect(try await engine.read(keys: []), is: [], "read(keys:) of no keys")
      try expect(try await engine.readDataAndKeys(keys: []), are: [], "readDataAndKeys(keys:) of no keys")
    }
    Check(
      .r2, "reads.of-100000-keys",
      "a request for 100,000 keys, three quarters of them absent, works"
    ) {
      context in
      let engine = try await context.open()
      let present = keys(500)
      try await engine.write(entries(present))
      // A million is just as realistic, but takes ten times as long.
      let most = context.budget.operations >= 100_000 ? 1_000_000 : 100_000
      let count = try await affordable(most, reading: present[0], in: engine)
      if count < most { context.noteShortfall("\(count) of \(most) keys") }
      // So many different keys that they fit neither into the parameters of a statement nor into a message of 4 MiB.
      let padding = String(repeating: ".", count: 50)
      let request = (0..<count).map {
        $0.isMultiple(of: 4) ? present[$0 / 4 * 7 % 500] : key("absent \($0) \(padding)")
      }
      let found = request.enumerated().filter { $0.offset.isMultiple(of: 4) }.map(\.element)
      try expect(
        try await engine.read(keys: request) == found.map { value(for: $0) },
        "read(keys:) of \(count) keys did not return the values of the \(found.count) that exist, in order")
      let part = Array(request.prefix(10_000))
      let pairs = try await engine.readDataAndKeys(keys: part)
      try expect(
        pairs, are: entries(Array(found.prefix((part.count + 3) / 4))),
        "readDataAndKeys(keys:) of \(part.count) keys")
    }

    Check(
      .r3, "reads.each-entry-once",
      "a read of everything contains each entry once, after overwrites and removals"
    ) {
      context in
      let engine = try await context.open()
      let keys = keys(300)
      try await engine.write(entries(keys))
      try await engine.write(entries(keys.suffix(150), version: 2))
      for key in keys.prefix(20) { try await engine.remove(key: key) }
      let expected = entries(Array(keys[20..<150])) + entries(keys.suffix(150), version: 2)
      let all = try await engine.readAllDataAndKeys().sorted { $0.key < $1.key }
      try expect(all, are: expected, "readAllDataAndKeys(), sorted")
      let values = Set(expected.map(\.data))
      let found = try await engine.readAllData()
      try expect(found.count, is: expected.count, "the number of values of readAllData()")
      try expect(Set(found) == values, "readAllData() did not return the values that were written")
      let listed = try await engine.allKeys()
      try expect(listed.count, is: expected.count, "the number of keys of allKeys()")
      try expect(Set(listed).count, is: expected.count, "the number of different keys of allKeys()")
    }
    Check(.r3, "reads.equal-values", "all entries with equal values are there") { context in
      let engine = try await context.open()
      try await engine.write(keys(5).map { ($0, data("same")) })
      let values = try await engine.readAllData()
      try expect(values, is: Array(repeating: data("same"), count: 5), "readAllData()")
    }
    for method in ReadMethod.ofManyValues {
      Check(
        .r3, "reads.\(method.rawValue)-returns-one-snapshot",
        "one call of \(method.call) returns one snapshot",
        needs: method.needsForSnapshot
      ) { context in
        try await checkSnapshot(context, method)
      }
    }
    Check(
      .r3, "reads.allKeys-returns-one-snapshot", "one call of allKeys() returns one snapshot",
      needs: .snapshotReads
    ) { context in
      try await checkSnapshotOfKeys(context)
    }
    for method in [ReadMethod.readEntries, .readAllEntries] {
      Check(
        .r3, "reads.\(method.rawValue)-shows-values-with-their-times",
        "\(method.call) returns each value with the timestamps of the write that stored it",
        needs: [.snapshotReads, .preservesTimestamps]
      ) { context in
        try await checkTimesOfValues(context, method)
      }
    }

    Check(
      .r4, "reads.never-hide-failure",
      "a read of a closed engine returns the right value or throws, and never returns nothing"
    ) { context in
      let engine = try await context.open()
      try await engine.write(data("v"), key: key("k"))
      try await engine.close()
      for method in ReadMethod.allCases {
        do {
          try expect(
            try await method.finds(data("v"), under: key("k"), in: engine),
            "\(method.call) after close() returned nothing and did not throw")
        } catch is CallFailure {
          // The read should throw. Rule O3 covers the error.
        }
      }
    }
  }
}

/// As many keys as the engine reads one by one in about 20 seconds, but at least a thousand: an engine may implement a
/// request for many keys as single reads. Only an engine that needs milliseconds for each key is asked for fewer than
/// the maximum.
private func affordable(_ most: Int, reading key: CacheKey, in engine: EngineUnderTest) async throws -> Int {
  let time = try await ContinuousClock().measure { for _ in 0..<10 { _ = try await engine.read(key: key) } }
  return min(most, max(1_000, Int(200 / max(time.inSeconds, 1e-6)) & ~1))
}

/// A writer increments the version of each key, in a mixed order that no reader uses. So the sum of all versions shows
/// how far the writer was, and which versions the keys had at that time.
private func checkSnapshot(_ context: CheckContext, _ method: ReadMethod) async throws {
  let engine = try await context.open()
  let rounds = context.byLevel(quick: 6, standard: 30, exhaustive: 300)
  let keys = keys(12)
  let order = keys.indices.map { $0 * 5 % 12 }
  for (index, key) in keys.enumerated() { try await engine.write(data("\(index) 0"), key: key) }
  try await whileRunning(rounds: rounds) { round in
    context.noteProgress()
    for index in order {
      try await engine.write(data("\(index) \(round + 1)"), key: keys[index])
      await Task.yield()
    }
  } readers: {
    // -1 for a key that is not there.
    var versions = [Int](repeating: -1, count: keys.count)
    for value in try await method.found(of: keys, in: engine).compactMap({ $0 }) {
      let parts = String(decoding: value, as: UTF8.self).split(separator: " ").compactMap { Int($0) }
      if parts.count == 2, versions.indices.contains(parts[0]) { versions[parts[0]] = parts[1] }
    }
    let (round, step) = versions.reduce(0, +).quotientAndRemainder(dividingBy: keys.count)
    var expected = [Int](repeating: round, count: keys.count)
    for index in order.prefix(max(0, step)) { expected[index] += 1 }
    try expect(
      versions == expected,
      "while keys were overwritten one after the other, \(method.call) returned the versions "
        + "\(versions.map(String.init).joined(separator: " ")), which never existed at the same time")
  }
}

/// A writer adds the next number and then removes the lowest, so that there are always five or six consecutive numbers.
private func checkSnapshotOfKeys(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let count = context.byLevel(quick: 60, standard: 300, exhaustive: 3_000)
  for number in 0..<5 { try await engine.write(data("v"), key: key("\(number)")) }
  try await whileRunning(rounds: count) { round in
    context.noteProgress()
    try await engine.write(data("v"), key: key("\(round + 5)"))
    await Task.yield()
    try await engine.remove(key: key("\(round)"))
  } readers: {
    let numbers = try await engine.allKeys().compactMap { Int($0.value) }.sorted()
    let isSnapshot =
      (5...6).contains(numbers.count) && (numbers.last ?? 0) - (numbers.first ?? 0) == numbers.count - 1
    try expect(
      isSnapshot,
      "while numbers were added at one end and removed at the other, allKeys() returned "
        + "\(describe(numbers)), which never existed at the same time")
  }
}

/// A writer imports versions of a few entries, each dated by its number, so that it need not wait for the clock.
private func checkTimesOfValues(_ context: CheckContext, _ method: ReadMethod) async throws {
  let engine = try await context.open()
  let keys = keys(4)
  @Sendable func time(_ version: Int) -> Date {
    Date(timeIntervalSince1970: 1_600_000_000 + 60 * Double(version))
  }
  @Sendable func entry(_ key: CacheKey, _ version: Int) -> StorageEntry {
    StorageEntry(
      key: key, data: data("\(version)"), createdAt: time(version) - 30, updatedAt: time(version))
  }
  try await engine.writeEntries(keys.map { entry($0, 0) })
  let versions = context.rounds(quick: 60, standard: 300, exhaustive: 3_000, of: "imports of four entries")
  try await whileRunning {
    for version in versions {
      try await engine.writeEntries(keys.map { entry($0, version) })
      await Task.yield()
    }
  } readers: { _ in
    let found =
      try await method == .readEntries ? engine.readEntries(keys: keys) : engine.readAllEntries()
    for found in found {
      let version = Int(String(decoding: found.data, as: UTF8.self)) ?? -1
      let isRight =
        abs(found.updatedAt.timeIntervalSince(time(version))) < 1
        && abs(found.createdAt.timeIntervalSince(time(version) - 30)) < 1
      try expect(
        isRight,
        "while entries were imported repeatedly, \(method.call) returned the value of version \(version) of "
          + "\(found.key) with the times of another version, \(describe(found.createdAt)) and "
          + "\(describe(found.updatedAt))")
    }
  }
}
