#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// The entries as returned by one method that reads everything.
private struct Listing {
  /// The rule that is broken if the listing is wrong. Nil stands for the rule of the check.
  let rule: ContractRule?
  let method: String
  /// The entries by key. The values are nil if the method returns only keys.
  let entries: [CacheKey: Data?]

  init(_ rule: ContractRule?, _ method: String, _ list: [(key: CacheKey, data: Data?)]) throws {
    (self.rule, self.method) = (rule, method)
    var entries: [CacheKey: Data?] = [:]
    entries.reserveCapacity(list.count)
    for (key, data) in list {
      if entries.updateValue(data, forKey: key) != nil {
        throw Violation("\(method) returned \(key) more than once", rule: rule)
      }
    }
    self.entries = entries
  }

  /// Whether the listing agrees with the value of the key, which is nil for an absent key.
  func agrees(on key: CacheKey, with value: Data?) -> Bool {
    switch (entries[key], value) {
    case (nil, let value): value == nil
    case (_?, nil): false
    case (let data??, let value?): data == value
    case (.some(.none), _?): true
    }
  }
}

/// Fails unless all methods that read agree on values, presence, times, order and count.
///
/// If two methods differ, `read(key:)` decides which of them is wrong, and so which rule is broken.
///
/// - Parameters:
///   - contents: What was written, if the caller knows it.
///   - most: If there are more entries than this, nothing is compared.
///   - progress: Called after each result, because an engine may need long for each.
func expectAllWaysAgree(
  in engine: EngineUnderTest, on contents: [(key: CacheKey, data: Data)]? = nil, atMost most: Int = .max,
  noting progress: CheckProgress? = nil
) async throws {
  let keys = try await asking(.k3, noting: progress) { try await engine.allKeys() }
  if keys.count > most { return }
  let pairs = try await asking(.r3, noting: progress) { try await engine.readAllDataAndKeys() }
  let entries = try await asking(.r6, noting: progress) { try await engine.readAllEntries() }
  let scanned = try await asking(.r5, noting: progress) { try await engine.scan(.all, limit: nil) }
  for (earlier, later) in zip(scanned, scanned.dropFirst()) where !(earlier.key < later.key) {
    throw Violation("scan(.all) returned \(later.key) after \(earlier.key)", rule: .r5)
  }
  var listings = [
    try Listing(.r3, "readAllDataAndKeys()", pairs.map { ($0.key, $0.data) }),
    try Listing(.k3, "allKeys()", keys.map { ($0, nil) }),
    try Listing(.r6, "readAllEntries()", entries.map { ($0.key, $0.data) }),
    try Listing(.r5, "scan(.all)", scanned.map { ($0.key, $0.data) }),
  ]
  if let contents {
    listings.insert(try Listing(nil, "what was written", contents.map { ($0.key, $0.data) }), at: 0)
  }
  var all: Set<CacheKey> = []
  for listing in listings { all.formUnion(listing.entries.keys) }
  let union = all.inByteOrder()
  try await expectAgreement(of: listings, on: union, in: engine)
  let present = union.filter { listings[0].entries[$0] != nil }
  let requested = try await asking(.r2, noting: progress) { try await engine.readDataAndKeys(keys: union) }
  listings.append(try Listing(.r2, "readDataAndKeys(keys:)", requested.map { ($0.key, $0.data) }))
  let some = try await asking(.r6, noting: progress) { try await engine.readEntries(keys: union) }
  listings.append(try Listing(.r6, "readEntries(keys:)", some.map { ($0.key, $0.data) }))
  let existing = try await asking(.l1, noting: progress) { try await engine.keysExist(union) }
  listings.append(try Listing(.l1, "keysExist(_:)", existing.map { ($0, nil) }))

  try await expectAgreement(of: listings, on: union, in: engine)
  try expectSameEntries(some, entries, keepsTimes: engine.capabilities.contains(.preservesTimestamps))
  try await expectSameValues(present, requested, in: engine, progress)
  try await expectSameAnswers(about: entries, in: engine)
  try expectCount(try await asking(.l2) { try await engine.keyCount() }, is: present.count)
}

/// Fails if the listings differ. Then `read(key:)` decides which of them is wrong.
private func expectAgreement(
  of listings: [Listing], on keys: [CacheKey], in engine: EngineUnderTest
) async throws {
  for key in keys {
    let first = listings[0].entries[key] ?? nil
    if listings.dropFirst().allSatisfy({ $0.agrees(on: key, with: first) }) { continue }
    let value = try await asking(.r1) { try await engine.read(key: key) }
    for listing in listings where !listing.agrees(on: key, with: value) {
      let said = listing.entries[key].map { $0.map { describe($0) } ?? "that it exists" } ?? "nothing"
      throw Violation(
        "for \(key), \(listing.method) returned \(said), but read(key:) returned \(describe(value as Any))",
        rule: listing.rule)
    }
  }
}

private func expectCount(_ count: Int, is expected: Int) throws {
  if count == expected { return }
  throw Violation("keyCount() was \(count), but there were \(expected) keys", rule: .l2)
}

/// Compares the order and the times of the two methods that return them.
private func expectSameEntries(_ some: [StorageEntry], _ all: [StorageEntry], keepsTimes: Bool) throws {
  // The default readEntries(keys:) only sorts by times.
  let isByTime = zip(some, some.dropFirst()).allSatisfy { $0.createdAt <= $1.createdAt }
  if keepsTimes || !isByTime, let (one, other) = zip(some, all).first(where: { $0.key != $1.key }) {
    throw Violation(
      "readEntries(keys:) of all keys returned \(one.key) where readAllEntries() returned \(other.key)",
      rule: .r6)
  }
  let times = Dictionary(all.map { ($0.key, $0) }) { first, _ in first }
  for one in some {
    guard let other = times[one.key] else { continue }
    if isSame(one.createdAt, other.createdAt), isSame(one.updatedAt, other.updatedAt) { continue }
    throw Violation(
      "for \(one.key), readEntries(keys:) returned the times \(describe([one.createdAt, one.updatedAt])), "
        + "but readAllEntries() \(describe([other.createdAt, other.updatedAt]))", rule: .w2)
  }
}

/// Compares the methods that return values without keys.
private func expectSameValues(
  _ present: [CacheKey], _ pairs: [(key: CacheKey, data: Data)], in engine: EngineUnderTest,
  _ progress: CheckProgress?
) async throws {
  let values = try await asking(.r2, noting: progress) { try await engine.read(keys: present) }
  if values != pairs.map(\.data) {
    throw Violation(
      "read(keys:) and readDataAndKeys(keys:) of \(present.count) keys returned different values", rule: .r2)
  }
  let all: [Data?] = try await asking(.r3, noting: progress) { try await engine.readAllData() }
  if case (let value?, let count)? = all.difference(from: values) {
    let comparison = "\(abs(count)) times \(count > 0 ? "more" : "fewer") than readAllDataAndKeys()"
    throw Violation("readAllData() returned \(describe(value)) \(comparison)", rule: .r3)
  }
}

/// The time limit for reads of single keys: a slow engine gets fewer of them.
private let timeout = Duration.milliseconds(100)

/// Compares the entries with the results of reads of single keys.
private func expectSameAnswers(about entries: [StorageEntry], in engine: EngineUnderTest) async throws {
  let start = ContinuousClock.now
  for (index, entry) in entries.enumerated().reversed() {
    if entries.count - index > 4, ContinuousClock.now - start > timeout { return }
    let (key, what) = (entry.key, "\(entry.key), which exists,")
    let value = try await asking(.r1) { try await engine.read(key: key) }
    if value != entry.data {
      throw Violation(
        "read(key:) of \(what) returned \(describe(value as Any)), but every other method "
          + "\(describe(entry.data))",
        rule: .r1)
    }
    if try await asking(.r1, { try await engine.keyExists(key) }) == false {
      throw Violation("keyExists(_:) of \(what) was false", rule: .r1)
    }
    let times = [
      ("createdAt", try await asking(.w2) { try await engine.createdAt(key: key) }, entry.createdAt),
      ("updatedAt", try await asking(.w2) { try await engine.updatedAt(key: key) }, entry.updatedAt),
    ]
    for (name, time, listed) in times where !(time.map { isSame($0, listed) } ?? false) {
      throw Violation(
        "\(name)(key:) of \(what) was \(describe(time as Any)), but in readAllEntries() \(describe(listed))",
        rule: .w2)
    }
  }
}

/// Whether two readings of one timestamp agree. Each may differ from the time of the call by 2 ms (rule W2), so they may differ
/// from each other by twice that, and by rounding.
func isSame(_ time: Date, _ other: Date) -> Bool {
  // The difference of two infinite times is not a number, and a time that is not a number differs from itself.
  time == other || abs(time.timeIntervalSince(other)) <= 0.004_5
    || time.timeIntervalSince1970.isNaN && other.timeIntervalSince1970.isNaN
}

/// Makes a call. An error breaks the rule of its method.
private func asking<Result>(
  _ rule: ContractRule, noting progress: CheckProgress? = nil, _ call: () async throws -> Result
) async throws -> Result {
  do {
    let answer = try await call()
    progress?.note()
    return answer
  } catch let failure as CallFailure {
    if (failure.error as? StorageError)?.code == .closed { throw EngineClosed() }
    throw Violation(failure.description, rule: rule)
  }
}

/// The engine has been closed, so nothing can be compared.
struct EngineClosed: Error {}

extension CheckDefinition {
  /// Whether the entries that the check leaves behind are compared across all methods that read. False for checks that remove
  /// something the engine needs, and for those that make concurrent calls, which may cause more faults than the check reports.
  var comparesAllWays: Bool {
    switch rule {
    case .k1, .k2, .k3, .k4, .v1, .v2, .v3, .w1, .w2, .w3, .w4, .w5, .w6: true
    case .r1, .r2, .r3, .r5, .r6, .d1, .d2, .l1, .l2, .t2, .t3: true
    default: rule.isForStores
    }
  }
}

extension CheckContext {
  /// Compares all methods that read, in each engine that the check has left open.
  func expectAllWaysAgree() async throws {
    for engine in enginesLeftOpen {
      noteProgress()
      do {
        try await ConformanceKit.expectAllWaysAgree(in: engine, atMost: 600, noting: progress)
      } catch is EngineClosed {
        continue
      } catch let violation as Violation {
        throw Violation("at the end, \(violation)", rule: violation.rule)
      }
    }
  }
}

/// A way to write entries.
typealias WayOfWriting = (
  name: String, write: @Sendable (EngineUnderTest, [(key: CacheKey, data: Data)]) async throws -> Void
)

/// All ways to write entries, which must have the same result. The ways that applications use come first.
let waysOfWriting: [WayOfWriting] = [ChangeMethod.write.way, wayOfBatches, wayOfApplying] + waysOfWritingOne

let waysOfWritingOne: [WayOfWriting] = [
  ("write(_:) of one", { for entry in $1 { try await $0.write([entry]) } }),
  ("apply(_:) of one", { for entry in $1 { try await $0.apply([.write(entry.data, key: entry.key)]) } }),
]

let wayOfBatches: WayOfWriting = ("write(_:) of many", { try await $0.write($1) })

let wayOfApplying: WayOfWriting = (
  "apply(_:)", { try await $0.apply($1.map { .write($0.data, key: $0.key) }) }
)

/// Removes each key and writes it, in the same call.
let wayOfReplacing: WayOfWriting = (
  "apply(_:) of removals and writes",
  { engine, entries in
    try await engine.apply(
      entries.flatMap { [.remove(key: $0.key), .write($0.data, key: $0.key)] as [StorageOperation] })
  }
)

/// Writes values together with their times. It is not among ``waysOfWriting``, because it replaces the times of
/// existing entries.
let wayOfImporting: WayOfWriting = (
  "writeEntries(_:)",
  { engine, entries in
    let now = Date()
    try await engine.writeEntries(
      entries.map { StorageEntry(key: $0.key, data: $0.data, createdAt: now, updatedAt: now) })
  }
)

/// For engines with transactions. The body reads back what it has written.
let wayOfTransactions: WayOfWriting = (
  "withTransaction(_:)",
  { engine, entries in
    try await engine.withTransaction { transaction in
      for (key, data) in entries { try transaction.write(data, key: key) }
      for (key, data) in entries where try transaction.read(key: key) != data {
        throw Violation(
          "read(key:) of a transaction did not return the \(data.count) bytes that its body had written",
          rule: .t2)
      }
    }
  }
)

/// A way to make keys absent.
typealias WayOfRemoving = (
  name: String, remove: @Sendable (EngineUnderTest, [CacheKey]) async throws -> Void
)

/// All ways to remove keys for an engine with these capabilities. One of them also removes all other keys.
func waysOfRemoving(_ capabilities: EngineCapabilities) -> [WayOfRemoving] {
  var ways: [WayOfRemoving] = []
  for method in ChangeMethod.allCases where method.removes {
    ways.append((method.call, { try await method.perform($1.map { ($0, Data()) }, in: $0) }))
  }
  for method in ChangeMethod.all(capabilities) where method == .apply || method == .transaction {
    ways.append(
      ("\(method.call) of removals", { try await method.perform($1.map { .remove(key: $0) }, in: $0) }))
  }
  return ways
}
