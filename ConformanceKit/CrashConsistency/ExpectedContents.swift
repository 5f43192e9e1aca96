#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// The expected contents of an engine after acknowledged operations, and after operations that may or may not have been
/// done.
///
/// A value identifies the write that stored it, so no two writes may have the same value.
///
/// ```swift
/// var expected = ExpectedContents(in: capabilities)
/// for number in 1...acknowledged { expected.apply(batches.operations(of: number)) }
/// try await expected.verify(engine, underWay: batches.operations(of: acknowledged + 1))
/// ```
struct ExpectedContents: Sendable {
  /// The entry that a write has left under a key. Times are numbers of operations.
  struct Version: Sendable, Hashable {
    let data: Data
    let created: Int
    let updated: Int
  }

  /// A version with the timestamps that were read for it.
  private struct Observation {
    let version: Version
    let createdAt: Date
    let updatedAt: Date
  }

  private let isAtomic: Bool
  private let beginning: Date
  private var operationCount = 0
  private var versions: [CacheKey: Version] = [:]
  private var observations: [CacheKey: Observation] = [:]

  /// Expects no entries.
  ///
  /// - Parameters:
  ///   - capabilities: What the engine claims. Without `atomicBatches` a batch in progress may have been done in part,
  ///     and entries with equal times may be in any order.
  ///   - beginning: When the first operation began, or earlier.
  init(in capabilities: EngineCapabilities, since beginning: Date = Date()) {
    isAtomic = capabilities.contains(.atomicBatches)
    self.beginning = beginning
  }

  /// The contents that are expected after the given number of batches.
  init(
    after number: Int, of batches: NumberedBatches, in capabilities: EngineCapabilities,
    since beginning: Date = Date()
  ) {
    self.init(in: capabilities, since: beginning)
    for number in 0..<number { apply(batches.operations(of: number + 1)) }
  }

  /// The value that is expected under a key.
  func value(of key: CacheKey) -> Data? { versions[key]?.data }

  /// How many entries are expected.
  var count: Int { versions.count }

  /// Records an acknowledged operation.
  mutating func apply(_ operations: [StorageOperation]) {
    for operation in operations {
      operationCount += 1
      switch operation {
      case .removeAll: versions = [:]
      case .remove(let key): versions[key] = nil
      case .write(let data, let key):
        versions[key] = Version(
          data: data, created: versions[key]?.created ?? operationCount, updated: operationCount)
      }
    }
  }

  /// Fails unless the engine holds all acknowledged operations, and nothing else except the one in progress: all of it
  /// or none or, without `atomicBatches`, some of it. The contents that were found are expected from now on.
  ///
  /// Reads everything about ten times, and calls verify().
  ///
  /// - Parameter note: Called after each result that may take an engine long.
  /// - Throws: ``Violation`` of W6 for lost or invented entries, W4 for part of a batch, R6 for the order of entries,
  ///   and W2 for timestamps that changed without a write since they were last read, went backwards, or are
  ///   implausible.
  mutating func verify(
    _ engine: any StorageEngine, underWay: [StorageOperation] = [],
    noting note: @Sendable () throws -> Void = {}
  ) async throws {
    if !underWay.isEmpty { try await Self.settle(engine) }
    try check(try await Self.agreedEntries(of: engine, noting: note), underWay: underWay)
    try await engine.verify()
    try note()
  }

  /// Waits until a server has finished the requests of a client that is gone. Without a server there is
  /// nothing to wait for.
  ///
  /// There is no signal for that, so it waits until nothing has changed for a while: longer if the server is
  /// slow or the machine is busy.
  static func settle(_ engine: any StorageEngine) async throws {
    guard engine.capabilities.contains(.networked) else { return }
    let clock = ContinuousClock()
    var start = clock.now
    var last = try await engine.readAllEntries()
    var pause = max(.milliseconds(30), (clock.now - start) * 3)
    var quietCount = 0
    while quietCount < 10 {
      try await Task.sleep(for: min(pause, .seconds(1)))
      start = clock.now
      let now = try await engine.readAllEntries()
      pause = max(pause, (clock.now - start) * 3)
      quietCount = now == last ? quietCount + 1 : 0
      last = now
    }
  }

  /// All entries of an engine. Fails unless its other read methods agree with them.
  ///
  /// - Parameter note: Called after each result about all entries, which may take an engine long.
  /// - Throws: ``Violation``.
  static func agreedEntries(
    of engine: any StorageEngine, noting note: @Sendable () throws -> Void = {}
  ) async throws -> [StorageEntry] {
    let found = try await engine.readAllEntries()
    try note()
    let sorted = found.sorted { $0.key < $1.key }
    func expect(_ count: Int, _ what: String, _ rule: ContractRule) throws {
      if count == found.count { return }
      throw Violation(
        "\(what) was \(count), but readAllEntries() returned \(found.count) entries", rule: rule)
    }
    try expect(try await engine.keyCount(), "keyCount()", .l2)
    let keys = try await engine.allKeys()
    try expect(keys.count, "the number of allKeys()", .k3)
    let isListed = Set(keys) == Set(found.map(\.key))
    if !isListed { throw Violation("allKeys() and readAllEntries() returned different keys", rule: .k3) }
    let read = try await engine.readDataAndKeys(keys: found.map(\.key))
    try note()
    try expect(read.count, "the number of entries of readDataAndKeys(keys:)", .r2)
    for (entry, read) in zip(found, read) where entry.key != read.key || entry.data != read.data {
      throw Violation(
        "readDataAndKeys(keys:) and readAllEntries() returned different values for \(entry.key)", rule: .r2)
    }
    try expect(try await engine.readAllData().count, "the number of readAllData()", .r3)
    try note()
    var scanned = try await engine.scan(.all, limit: nil)
    try note()
    if !engine.capabilities.contains(.orderedScans) { scanned.sort { $0.key < $1.key } }
    try expect(scanned.count, "the number of entries of scan(.all)", .r5)
    for (entry, scanned) in zip(sorted, scanned)
    where entry.key != scanned.key || entry.data != scanned.data {
      throw Violation(
        "scan(.all) returned \(scanned.key) where \(entry.key) was expected from the keys of "
          + "readAllEntries(), or another value for it", rule: .r5)
    }
    if let middle = sorted.dropFirst(sorted.count / 2).first?.key {
      for range in [KeyRange(after: middle, upTo: nil), KeyRange(after: nil, upTo: middle)] {
        let count = try await engine.scan(range, limit: nil).count
        try note()
        let wanted = sorted.count { range.contains($0.key) }
        if count == wanted { continue }
        throw Violation(
          "\(describe(range, nil)) returned \(count) entries instead of the \(wanted) that are in "
            + "readAllEntries()", rule: .r5
        )
      }
    }
    do {
      try await expectAllWaysAgree(in: engine as? EngineUnderTest ?? EngineUnderTest(engine), atMost: 60)
    } catch is EngineClosed {
      throw Violation("an open engine threw closed", rule: .o3)
    }
    return found
  }

  /// Like ``verify(_:underWay:noting:)``, for entries that have already been read.
  ///
  /// - Parameter end: When the process that wrote last died.
  mutating func check(
    _ found: [StorageEntry], underWay: [StorageOperation] = [], writtenUntil end: Date? = nil
  ) throws {
    let now = Date()
    var values: [CacheKey: Data] = [:]
    for entry in found {
      guard values.updateValue(entry.data, forKey: entry.key) == nil else {
        throw Violation("readAllEntries() returned \(entry.key) twice", rule: .r3)
      }
    }
    versions = try identify(values, underWay)
    try expectOrder(found)
    observations = try expectTimestamps(found, now)
    if let end { try expectNoRecoveredTimes(found, underWay, end) }
  }
}

// MARK: - Values

extension ExpectedContents {
  /// Determines which version of each key was found.
  private mutating func identify(
    _ values: [CacheKey: Data], _ underWay: [StorageOperation]
  ) throws -> [CacheKey: Version] {
    let before = versions
    // The other possible values of each key that an operation in progress changes, in order.
    var later: [CacheKey: [Version?]] = [:]
    for operation in underWay {
      let touched =
        switch operation {
        case .removeAll: Array(versions.keys)
        case .remove(let key), .write(_, let key): [key]
        }
      apply([operation])
      for key in touched { later[key, default: []].append(versions[key]) }
    }

    var found: [CacheKey: Version] = [:]
    for key in Set(before.keys).union(values.keys).union(later.keys) {
      let possible = [before[key]] + later[key, default: []]
      guard let version = possible.last(where: { $0?.data == values[key] }) else {
        throw mismatch(key, values[key], possible)
      }
      found[key] = version
    }
    if isAtomic { try expectWhole(found, later.keys, before) }
    return found
  }

  /// Fails unless the keys are all as they were before the batch or all as they are after it.
  private func expectWhole(
    _ found: [CacheKey: Version], _ keys: some Sequence<CacheKey>, _ before: [CacheKey: Version]
  ) throws {
    let keys = keys.sorted()
    guard let new = keys.first(where: { found[$0]?.data != before[$0]?.data }),
      let old = keys.first(where: { found[$0]?.data != versions[$0]?.data })
    else { return }
    throw Violation(
      "only a part of the batch in progress was there: \(new) had \(name(found[new]?.data)) instead of the "
        + "previous \(name(before[new]?.data)), but \(old) had \(name(found[old]?.data)) instead of the new "
        + "\(name(versions[old]?.data))",
      rule: .w4)
  }

  private func mismatch(_ key: CacheKey, _ value: Data?, _ possible: [Version?]) -> Violation {
    let wanted = name(possible[0]?.data)
    if possible.count == 1 {
      return Violation(
        "\(key) had \(name(value)) instead of the acknowledged \(wanted)", rule: .w6)
    }
    let last = name(possible.last.flatMap { $0 }?.data)
    return Violation(
      "\(key) had \(name(value)), which is neither the acknowledged \(wanted) nor \(last), which was in "
        + "progress", rule: .w6)
  }
}

/// A short name of a value for sentences: its first line, which says where it comes from.
private func name(_ value: Data?) -> String {
  guard let value else { return "no value" }
  guard let end = value.prefix(60).firstIndex(of: UInt8(ascii: "\n")) else {
    return value.count < 20 ? "\"\(String(decoding: value, as: UTF8.self))\"" : describe(value)
  }
  return "the value \"\(String(decoding: value[..<end], as: UTF8.self))\" (\(value.count) bytes)"
}

// MARK: - Order and timestamps

extension ExpectedContents {
  private func expectOrder(_ found: [StorageEntry]) throws {
    for (one, other) in zip(found, found.dropFirst()) {
      guard let first = versions[one.key], let second = versions[other.key], first.created > second.created
      else { continue }
      // An engine that implements a batch as single writes cannot distinguish two of them within one tick of the clock.
      if !isAtomic, one.createdAt == other.createdAt { continue }
      throw Violation(
        "readAllEntries() returned \(one.key) before \(other.key), which had been written first", rule: .r6)
    }
  }

  private func expectTimestamps(_ found: [StorageEntry], _ now: Date) throws -> [CacheKey: Observation] {
    // The clock may have been set back meanwhile.
    let earliest = min(beginning, now).addingTimeInterval(-ClockTolerance.seconds)
    let latest = max(beginning, now).addingTimeInterval(ClockTolerance.seconds)
    var seen: [CacheKey: Observation] = [:]
    for entry in found {
      guard let version = versions[entry.key] else { continue }
      let isOfThisTime = earliest <= entry.createdAt && entry.updatedAt <= latest
      if !isOfThisTime || entry.createdAt > entry.updatedAt {
        throw changed(
          entry,
          "were not between \(describe(earliest)) and \(describe(latest)), or createdAt was after updatedAt")
      }
      if let before = observations[entry.key], before.version.created == version.created {
        let isSame = before.version.updated == version.updated
        if differ(entry.createdAt, before.createdAt) || isSame && differ(entry.updatedAt, before.updatedAt) {
          throw changed(
            entry,
            "had changed, without a write, from \(describe(before.createdAt)) and \(describe(before.updatedAt))"
          )
        }
        if entry.updatedAt < before.updatedAt, differ(entry.updatedAt, before.updatedAt) {
          throw changed(entry, "had gone back from updatedAt \(describe(before.updatedAt))")
        }
      }
      seen[entry.key] = Observation(version: version, createdAt: entry.createdAt, updatedAt: entry.updatedAt)
    }
    return seen
  }

  /// Fails if acknowledged entries have the time of a recovery instead of the time of their write.
  private func expectNoRecoveredTimes(
    _ found: [StorageEntry], _ underWay: [StorageOperation], _ end: Date
  ) throws {
    let latest = max(beginning, end).addingTimeInterval(ClockTolerance.seconds)
    let mayBeLater = Set(underWay.compactMap(\.key))
    for entry in found where entry.updatedAt > latest && !mayBeLater.contains(entry.key) {
      throw changed(
        entry, "were after \(describe(end)), when the process that wrote it had already ended")
    }
  }

  /// Whether two readings of one timestamp differ by more than a stored timestamp may be rounded.
  private func differ(_ one: Date, _ other: Date) -> Bool {
    abs(one.timeIntervalSince(other)) > precisionOfTime
  }

  private func changed(_ entry: StorageEntry, _ how: String) -> Violation {
    Violation(
      "createdAt and updatedAt of \(entry.key), \(describe(entry.createdAt)) and \(describe(entry.updatedAt)), \(how)",
      rule: .w2)
  }
}
