#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Calls during which something else happens, at each point where they suspend: rules C1, W4, R3, C4 and R4.

extension CheckDefinition {
  @CheckList static var suspensionChecks: [CheckDefinition] {
    Check(
      .c1, "suspensions.of-changes",
      "another change that is made where a change of one key suspends takes effect before or after it"
    ) { context in
      let (one, other) = (key("one"), key("other"))
      try await checkPairs(
        of: ChangeMethod.all(context.capabilities), [one], and: [[one], [other]], context)
    }
    Check(
      .w4, "suspensions.of-batches",
      "another batch that is written where a batch suspends takes effect before or after it, as a whole",
      needs: .atomicBatches
    ) { context in
      let methods = ChangeMethod.all(context.capabilities).filter { !$0.isOfOneKey }
      try await checkPairs(of: methods, keys(4), and: [keys(4), Array(keys(6).suffix(4))], context)
    }
    Check(
      .r3, "suspensions.of-reads",
      "a read that suspends while every entry is replaced returns one snapshot",
      needs: [.snapshotReads, .atomicBatches]
    ) { try await checkReads($0) }
    Check(
      .c4, "suspensions.where-reads-are-cancelled",
      "a read that is cancelled where it suspends returns its complete result or throws CancellationError"
    ) { try await checkCancelledReads($0) }
    Check(
      .r4, "suspensions.of-reads-at-close",
      "a read that suspends while the engine is closed returns every entry, or throws closed"
    ) { try await checkClosings($0) }
  }
}

/// The most points at which one call is held.
private func mostPoints(_ context: CheckContext) -> Int {
  context.byLevel(quick: 8, standard: 24, exhaustive: 200)
}

/// The number of entries for a read that an engine might make page by page.
private func entryCount(_ context: CheckContext) async throws -> Int {
  let wanted = context.byLevel(quick: 600, standard: 2_500, exhaustive: 10_000)
  let affordable = try await context.affordableEntries()
  let count = min(wanted, max(20, min(affordable.writes / 100, affordable.reads / 100)))
  if count < wanted { context.noteShortfall("\(count) of \(wanted) entries in each read") }
  return count
}

// MARK: - Two changes

private typealias Entries = [CacheKey: Data]

/// Makes the second change where the first suspends, for pairs of methods, and compares the entries with those of both serial orders.
///
/// - Parameter choices: The keys of the second change.
private func checkPairs(
  of methods: [ChangeMethod], _ keys: [CacheKey], and choices: [[CacheKey]], _ context: CheckContext
) async throws {
  let engine = try await context.open()
  let all = Set(choices.flatMap { $0 } + keys).sorted()
  let pairs = methods.indices.flatMap { shift in
    methods.indices.map { (methods[$0], methods[($0 + shift) % methods.count]) }
  }
  // With and without entries before. From standard on, each pair with each choice of keys.
  let (few, many) = (pairs.count * 2, pairs.count * 2 * choices.count)
  let rounds = context.rounds(quick: few, standard: many, exhaustive: many, of: "pairs of changes")
  for round in rounds {
    context.noteProgress()
    let number = round / 2
    let (first, second) = pairs[number % pairs.count]
    let others = choices[(number + number / pairs.count) % choices.count]
    let present = round.isMultiple(of: 2) ? all : []
    let before = Entries(uniqueKeysWithValues: present.map { ($0, data("before")) })
    func prepare() async throws {
      try await engine.removeAllData()
      if !before.isEmpty { try await engine.write(before.map { ($0.key, $0.value) }) }
    }
    let change = { @Sendable in
      try await first.performAmongMany(keys.map { ($0, data("first")) }, in: engine)
    }
    try await prepare()
    for point in try await suspensionPoints(of: change, atMost: mostPoints(context)) {
      try await prepare()
      try await held(at: point, change) {
        try await second.performAmongMany(others.map { ($0, data("second")) }, in: engine)
      }.get()
      let found = try await engine.readDataAndKeys(keys: all)
      try expectSerial(
        Entries(found.map { ($0.key, $0.data) }) { $1 }, (first, keys), (second, others), from: before)
      try expect(
        try await engine.keyCount(), is: found.count,
        "keyCount() after \(second.call) where \(first.call) was suspended")
    }
  }
}

private func expectSerial(
  _ found: Entries, _ first: (method: ChangeMethod, keys: [CacheKey]),
  _ second: (method: ChangeMethod, keys: [CacheKey]), from before: Entries
) throws {
  var (firstLast, secondLast) = (before, before)
  second.method.change(second.keys, to: data("second"), in: &firstLast)
  first.method.change(first.keys, to: data("first"), in: &firstLast)
  first.method.change(first.keys, to: data("first"), in: &secondLast)
  second.method.change(second.keys, to: data("second"), in: &secondLast)
  try expect(
    found == firstLast || found == secondLast,
    "after \(second.method.call) where \(first.method.call) was suspended, the entries were \(described(found)); one after the "
      + "other they would be \(described(firstLast)) or \(described(secondLast))")
}

private func described(_ entries: Entries) -> String {
  let texts = entries.sorted { $0.key < $1.key }.map { "\($0.key): \(describe($0.value))" }
  return "[\(texts.joined(separator: ", "))]"
}

extension ChangeMethod {
  /// Makes the change in a model.
  fileprivate func change(_ keys: [CacheKey], to value: Data, in entries: inout [CacheKey: Data]) {
    switch self {
    case .removeAll: entries = [:]
    case _ where removes: for key in keys { entries[key] = nil }
    default: for key in keys { entries[key] = value }
    }
  }
}

// MARK: - Reads

/// Replaces all entries by others where a read suspends.
private func checkReads(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let count = try await entryCount(context)
  let (even, odd) = (keys(count, prefix: "a-"), keys(count, prefix: "z-"))
  let replace = { @Sendable (version: Int) in
    let keys = version.isMultiple(of: 2) ? even : odd
    try await engine.apply([.removeAll] + keys.map { .write(data("\(version)"), key: $0) })
  }
  var version = 0
  let methods = (ReadMethod.ofManyValues + [.allKeys]).filter {
    context.capabilities.isSuperset(of: $0.needsForSnapshot)
  }
  for method in methods where method != .scan || context.capabilities.contains(.orderedScans) {
    try await replace(version)
    let read = { @Sendable in try await method.found(of: even + odd, in: engine) }
    for point in try await suspensionPoints(of: { _ = try await read() }, atMost: mostPoints(context)) {
      context.noteProgress()
      version += 1
      let found = try await held(at: point, read) { [version] in try await replace(version) }.get()
      try expect(
        found.count == count && Set(found).count == 1,
        "\(method.call) of \(count) entries that were all replaced while it was suspended returned \(found.count), of "
          + "\(Set(found).count) versions")
    }
  }
}

// MARK: - Cancelled reads

private func checkCancelledReads(_ context: CheckContext) async throws {
  let engine = try await context.open()
  let keys = keys(try await entryCount(context))
  try await engine.write(entries(keys))
  for method in ReadMethod.allCases where !method.isOfOneKey {
    let read = { @Sendable in try await method.found(of: keys, in: engine).count }
    for point in try await suspensionPoints(of: { _ = try await read() }, atMost: mostPoints(context) * 4) {
      context.noteProgress()
      let result = try await held(at: point, read, meanwhile: { $0.cancel() })
      try expectWholeOrCancelled(result, of: keys.count, by: method)
    }
  }
}

// MARK: - Closing

private func checkClosings(_ context: CheckContext) async throws {
  let keys = keys(min(300, try await entryCount(context)))
  for method in ReadMethod.ofManyValues {
    func opened(_ number: Int) async throws -> EngineUnderTest {
      context.noteProgress()
      let engine = try await context.open(
        context.root.appending(path: "\(method.rawValue) \(number)", directoryHint: .isDirectory))
      try await engine.write(entries(keys))
      return engine
    }
    let engine = try await opened(0)
    let points = try await suspensionPoints(
      of: { _ = try await method.found(of: keys, in: engine) }, atMost: mostPoints(context) / 2)
    for point in points {
      let engine = try await opened(point)
      let read = { @Sendable in try await method.found(of: keys, in: engine).count }
      let result = try await held(at: point, read, beside: { try await engine.close() })
      try expectWholeOrClosed(result, of: keys.count, by: method)
      engine.release()
    }
  }
}
