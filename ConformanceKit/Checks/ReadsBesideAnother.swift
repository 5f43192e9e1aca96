#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Reads of one engine while another one on its place changes entries: rules C2 and C3. An engine may serialize its own
// calls, and not those of another instance or process.

/// Changes that one of two engines makes while the other one reads.
struct PassingChanges: Codable, Sendable {
  /// At most 250, because each has a byte of its own.
  let rounds: Int

  /// Entries that nothing changes.
  static let still = keys(12, prefix: "still-")
  /// Entries that each round overwrites in one batch, all with the same value.
  static let overwritten = keys(3, prefix: "overwritten-")
  /// Entries that each round writes and removes.
  static let passing = keys(2, prefix: "passing-")

  /// A value of many pages with the same byte everywhere. Its size differs from that of the version before.
  static func value(_ version: Int) -> Data {
    Data(repeating: UInt8(truncatingIfNeeded: version), count: 40_000 + version % 5 * 1_700)
  }

  /// The version of a value, or nil if it is not the whole value of a version.
  static func version(of data: Data) -> Int? {
    guard let first = data.first, value(Int(first)) == data else { return nil }
    return Int(first)
  }

  /// Makes the changes by all methods in turn. A slow engine makes fewer.
  ///
  /// - Parameter note: Called after each round.
  func perform(on engine: EngineUnderTest, note: () throws -> Void) async throws {
    let methods = ChangeMethod.writing(engine.capabilities).filter { !$0.isOfOneKey }
    let end = ContinuousClock.now + .seconds(1)
    for round in 0..<rounds {
      if round > 5, ContinuousClock.now > end { return }
      let value = Self.value(round + 2)
      try await methods[round % methods.count].performAmongMany(
        Self.overwritten.map { ($0, value) }, in: engine)
      try await engine.write(entries(Self.passing))
      try await engine.remove(keys: Self.passing)
      try note()
    }
  }
}

/// Fails unless each read, by any method, returns whole values and every unchanged entry while another engine on the
/// place makes changes, and nothing that was never written.
///
/// - Parameters:
///   - engine: The engine that reads. The place has no other entries.
///   - change: Has the other engine make the changes.
func checkReadsBesideAnother(
  _ engine: EngineUnderTest, _ context: CheckContext,
  change: @escaping @Sendable (PassingChanges) async throws -> Void
) async throws {
  let changes = PassingChanges(rounds: context.byLevel(quick: 12, standard: 60, exhaustive: 240))
  let first = PassingChanges.value(1)
  try await engine.write(
    entries(PassingChanges.still) + PassingChanges.overwritten.map { ($0, first) })
  let readers = 2
  let states = MutexProtected(Array(repeating: BesideReader(), count: readers))
  try await whileRunning({ try await change(changes) }, readerCount: readers) { number in
    var reader = states.withLock { $0[number] }
    try await reader.read(engine)
    states.withLock { [reader] in $0[number] = reader }
    // Some locks are unfair to whoever waits for them.
    if reader.reads.isMultiple(of: 3) { await letTimePass() }
  }
}

/// A task that reads beside the changes of another engine.
private struct BesideReader {
  private(set) var reads = 0
  /// The latest version that it has read.
  private var latest = 1

  /// Reads by the next method.
  mutating func read(_ engine: EngineUnderTest) async throws {
    let number = reads
    reads += 1
    do {
      try await read(number, engine)
    } catch let failure as CallFailure {
      // An engine may need the place for itself.
      if (failure.error as? StorageError)?.code == .locked { return }
      throw Violation("while another engine changed entries, \(failure)")
    }
  }

  private mutating func read(_ number: Int, _ engine: EngineUnderTest) async throws {
    let (still, overwritten) = (PassingChanges.still, PassingChanges.overwritten)
    let requested = still + overwritten
    // Most reads are of values.
    let methods: [ReadMethod] = [
      .read, .readDataAndKeys, .readAllDataAndKeys, .read, .readAllEntries, .allKeys, .read, .readMany, .scan,
      .read, .readEntries, .keysExist, .read, .readAllData, .keyCount,
    ]
    let method = methods[number % methods.count]
    let isOneMoment = engine.capabilities.isSuperset(of: method.needsForOneMoment.union(.atomicBatches))
    func expectListed(_ entries: [(key: CacheKey, data: Data?)]) throws {
      try expectKeys(entries.map(\.key), of: method, isComplete: isOneMoment || method.isOfManyKeys)
      var values: [Data] = []
      for (key, data) in entries {
        guard let data else { continue }
        if overwritten.contains(key) { values.append(data) } else { try expectValue(data, of: key, method) }
      }
      try expectVersions(values, of: method, isOneMoment: isOneMoment, engine.capabilities)
    }
    switch method {
    case .readDataAndKeys:
      try expectListed(try await engine.readDataAndKeys(keys: requested).map { ($0.key, $0.data) })
    case .readAllDataAndKeys:
      try expectListed(try await engine.readAllDataAndKeys().map { ($0.key, $0.data) })
    case .readAllEntries: try expectListed(try await engine.readAllEntries().map { ($0.key, $0.data) })
    case .readEntries:
      try expectListed(try await engine.readEntries(keys: requested).map { ($0.key, $0.data) })
    case .scan: try expectListed(try await engine.scan(.all, limit: nil).map { ($0.key, $0.data) })
    case .allKeys: try expectListed(try await engine.allKeys().map { ($0, nil) })
    case .keysExist: try expectListed(try await engine.keysExist(requested).map { ($0, nil) })
    case .readMany:
      let found = try await engine.read(keys: overwritten)
      try expect(found.count, is: overwritten.count, "the number of values of \(method.call) beside another")
      try expectVersions(found, of: method, isOneMoment: isOneMoment, engine.capabilities)
    case .readAllData:
      let found = try await engine.readAllData().filter { $0.count > 1_000 }
      try expectVersions(found, of: method, isOneMoment: isOneMoment, engine.capabilities)
    case .keyCount:
      let count = try await engine.keyCount()
      let possible = requested.count...(requested.count + PassingChanges.passing.count)
      try expect(
        possible.contains(count), "beside changes of another, keyCount() was \(count), not in \(possible)")
    default:
      let key = overwritten[number % overwritten.count]
      guard let data = try await engine.read(key: key) else {
        throw Violation("while another engine overwrote \(key), read(key:) of it returned nil")
      }
      try expectVersions([data], of: method, isOneMoment: true, engine.capabilities)
    }
  }

  /// - Parameter isComplete: Whether keys that are overwritten must be there. Without a snapshot, a list may miss
  ///   them.
  private func expectKeys(_ keys: [CacheKey], of method: ReadMethod, isComplete: Bool) throws {
    let (still, overwritten) = (PassingChanges.still, PassingChanges.overwritten)
    let known = Set(still + overwritten + PassingChanges.passing)
    if let foreign = keys.first(where: { !known.contains($0) }) {
      throw Violation("beside changes of another, \(method.call) listed \(foreign), which nobody had written")
    }
    let wanted = Set(isComplete ? still + overwritten : still)
    let found = keys.filter(wanted.contains)
    try expect(
      found.count == wanted.count && Set(found) == wanted,
      "beside changes of another, \(method.call) listed \(found.count) keys, \(Set(found).count) of the "
        + "\(wanted.count) that were there all the time")
  }

  private func expectValue(_ data: Data, of key: CacheKey, _ method: ReadMethod) throws {
    try expect(
      data == value(for: key),
      "beside changes of another, \(method.call) returned \(describe(data)) for \(key), which has another value"
    )
  }

  /// Fails unless these are whole values, no older than those that were read before.
  private mutating func expectVersions(
    _ values: [Data], of method: ReadMethod, isOneMoment: Bool, _ capabilities: EngineCapabilities
  ) throws {
    var versions: [Int] = []
    for data in values {
      guard let version = PassingChanges.version(of: data) else {
        throw Violation(
          "while another engine overwrote a value, \(method.call) returned \(describe(data)), which is none of "
            + "its values")
      }
      versions.append(version)
    }
    // Each batch is one step, which single reads before and after it see too.
    guard capabilities.contains(.atomicBatches), let oldest = versions.min(), let newest = versions.max()
    else { return }
    try expect(
      !isOneMoment || oldest == newest,
      "\(method.call) returned a half of a batch of another engine: versions \(versions)")
    try expect(
      oldest >= latest,
      "\(method.call) returned version \(oldest) of what another engine overwrites, after version \(latest)")
    latest = newest
  }
}
