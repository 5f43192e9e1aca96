#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

// Reads while large entries are overwritten, by the same engine, or by another one on its place: rules C1, C2 and C3. An
// engine may compact its files, which moves the entries, and may serialize its own calls and not those of another
// instance or process.

/// Changes that are made while other engines or tasks read.
struct PassingChanges: Codable, Sendable {
  /// At most 250, because each round writes values of a different byte.
  let rounds: Int
  /// The minimum size of the values.
  let size: Int

  /// Entries that nothing changes.
  static let still = keys(12, prefix: "still-")
  /// Entries that each round overwrites in one batch, all with the same value.
  static let overwritten = keys(3, prefix: "overwritten-")
  /// Entries that each round writes and removes.
  static let passing = keys(2, prefix: "passing-")

  /// A value of many pages with the same byte everywhere. Its size differs from that of the version before.
  func value(_ version: Int) -> Data {
    Data(repeating: UInt8(truncatingIfNeeded: version), count: size + version % 5 * 1_700)
  }

  /// The version of a value, or nil if it is not the whole value of a version.
  func version(of data: Data) -> Int? {
    guard let first = data.first, value(Int(first)) == data else { return nil }
    return Int(first)
  }

  /// The entries before the changes.
  var entriesBefore: [(key: CacheKey, data: Data)] {
    entries(Self.still) + Self.overwritten.map { (key: $0, data: value(1)) }
  }

  /// Makes the changes by all methods in turn. A slow engine makes fewer.
  ///
  /// - Parameter note: Called after each round.
  func perform(on engine: EngineUnderTest, note: () throws -> Void) async throws {
    let methods = ChangeMethod.writing(engine.capabilities).filter { !$0.isOfOneKey }
    let end = ContinuousClock.now + .seconds(1)
    for round in 0..<rounds {
      if round > 5, ContinuousClock.now > end { return }
      let new = value(round + 2)
      try await methods[round % methods.count].performAmongMany(
        Self.overwritten.map { (key: $0, data: new) }, in: engine)
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
  let changes = PassingChanges(
    rounds: context.byLevel(quick: 12, standard: 60, exhaustive: 240), size: 40_000)
  try await engine.write(changes.entriesBefore)
  try await readRepeatedly(engine, beside: changes, isShared: true) { try await change(changes) }
}

/// Fails unless each read, by any method, returns whole values and every unchanged entry while another task overwrites
/// so much that the engine may compact its files.
func checkReadsBesideOverwrites(_ context: CheckContext) async throws {
  let engine = try await context.open(context.root.appending(path: "large", directoryHint: .isDirectory))
  let changes = PassingChanges(
    rounds: context.byLevel(quick: 8, standard: 48, exhaustive: 240), size: 700_000)
  do {
    try await engine.write(changes.entriesBefore)
    var reader = BesideReader(changes: changes, isShared: false, first: 0)
    for _ in BesideReader.methods { try await reader.read(engine) }
  } catch is Violation, is CallFailure {
    // Other checks cover how the engine handles large values while nothing changes.
    return
  }
  try await readRepeatedly(engine, beside: changes, isShared: false) {
    try await changes.perform(on: engine) { context.noteProgress() }
  }
  try await context.close(engine)
}

private func readRepeatedly(
  _ engine: EngineUnderTest, beside changes: PassingChanges, isShared: Bool,
  _ change: @escaping @Sendable () async throws -> Void
) async throws {
  let readers = isShared ? 2 : 3
  let states = MutexProtected(
    (0..<readers).map {
      BesideReader(changes: changes, isShared: isShared, isOfSingleKeys: $0 == 2, first: 5 * $0)
    })
  try await whileRunning(change, readerCount: readers) { number in
    var reader = states.withLock { $0[number] }
    try await reader.read(engine)
    states.withLock { [reader] in $0[number] = reader }
    // A lock on the place may be unfair to the engines that wait for it.
    if isShared, reader.reads.isMultiple(of: 3) { await letTimePass() }
  }
}

/// A task that reads beside the changes of another engine, or of another task.
private struct BesideReader {
  /// The methods in turn. Most of them return values.
  static let methods: [ReadMethod] = [
    .read, .readDataAndKeys, .readAllDataAndKeys, .read, .readAllEntries, .allKeys, .read, .readMany, .scan,
    .read, .readEntries, .keysExist, .read, .readAllData, .keyCount,
  ]

  let changes: PassingChanges
  /// Whether another engine makes the changes. For one engine, other rules cover that batches appear at once.
  let isShared: Bool
  /// Whether it only reads single values, which takes little time.
  let isOfSingleKeys: Bool
  private(set) var reads: Int
  /// The latest version that it has read.
  private var latest = 1

  /// - Parameter first: The index of the method with which it begins.
  init(changes: PassingChanges, isShared: Bool, isOfSingleKeys: Bool = false, first: Int) {
    (self.changes, self.isShared, self.isOfSingleKeys) = (changes, isShared, isOfSingleKeys)
    reads = first
  }

  /// Reads by the next method.
  mutating func read(_ engine: EngineUnderTest) async throws {
    let number = reads
    reads += 1
    do {
      try await read(number, engine)
    } catch let failure as CallFailure {
      // An engine may need exclusive access to the place.
      if (failure.error as? StorageError)?.code == .locked { return }
      throw Violation("while \(others) changed entries, \(failure)")
    }
  }

  private var others: String { isShared ? "another engine" : "another task" }

  private mutating func read(_ number: Int, _ engine: EngineUnderTest) async throws {
    let (still, overwritten) = (PassingChanges.still, PassingChanges.overwritten)
    let requested = still + overwritten
    let method = isOfSingleKeys ? .read : Self.methods[number % Self.methods.count]
    let isSnapshot = engine.capabilities.isSuperset(of: method.needsForSnapshot.union(.atomicBatches))
    func expectListed(_ entries: [(key: CacheKey, data: Data?)]) throws {
      try expectKeys(entries.map(\.key), of: method, isComplete: isSnapshot || method.isOfManyKeys)
      var values: [Data] = []
      for (key, data) in entries {
        guard let data else { continue }
        if overwritten.contains(key) { values.append(data) } else { try expectValue(data, of: key, method) }
      }
      try expectVersions(values, of: method, isSnapshot: isSnapshot, engine.capabilities)
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
      try expect(
        found.count == overwritten.count, of: method,
        "returned \(found.count) values for \(overwritten.count) keys that were there all the time")
      try expectVersions(found, of: method, isSnapshot: isSnapshot, engine.capabilities)
    case .readAllData:
      let found = try await engine.readAllData().filter { $0.count > 1_000 }
      try expectVersions(found, of: method, isSnapshot: isSnapshot, engine.capabilities)
    case .keyCount:
      let count = try await engine.keyCount()
      let possible = requested.count...(requested.count + PassingChanges.passing.count)
      try expect(possible.contains(count), of: method, "returned \(count), which is not in \(possible)")
    default:
      let key = overwritten[number % overwritten.count]
      guard let data = try await engine.read(key: key) else {
        throw Violation("while \(others) overwrote \(key), read(key:) of it returned nil")
      }
      try expectVersions([data], of: method, isSnapshot: true, engine.capabilities)
    }
  }

  /// - Parameter isComplete: Whether keys that are overwritten must be there. Without a snapshot, a list may miss
  ///   them.
  private func expectKeys(_ keys: [CacheKey], of method: ReadMethod, isComplete: Bool) throws {
    let (still, overwritten) = (PassingChanges.still, PassingChanges.overwritten)
    let known = Set(still + overwritten + PassingChanges.passing)
    if let foreign = keys.first(where: { !known.contains($0) }) {
      try expect(false, of: method, "listed \(foreign), which had never been written")
    }
    let wanted = Set(isComplete ? still + overwritten : still)
    let found = keys.filter(wanted.contains)
    try expect(
      found.count == wanted.count && Set(found) == wanted, of: method,
      "listed \(found.count) keys, \(Set(found).count) of the \(wanted.count) that were there all the time")
  }

  /// Fails, with the rule of the method if only one engine is involved.
  private func expect(_ condition: Bool, of method: ReadMethod, _ what: @autoclosure () -> String) throws {
    if condition { return }
    let rule = method.isOfManyKeys || !method.givesValues ? method.rule : .r3
    throw Violation(
      "while \(others) overwrote entries, \(method.call) \(what())", rule: isShared ? nil : rule)
  }

  private func expectValue(_ data: Data, of key: CacheKey, _ method: ReadMethod) throws {
    try expect(
      data == value(for: key), of: method,
      "returned \(describe(data)) for \(key), which has another value")
  }

  /// Fails unless these are whole values, no older than those that were read before.
  private mutating func expectVersions(
    _ values: [Data], of method: ReadMethod, isSnapshot: Bool, _ capabilities: EngineCapabilities
  ) throws {
    var versions: [Int] = []
    for data in values {
      guard let version = changes.version(of: data) else {
        throw Violation(
          "while \(others) overwrote values, \(method.call) returned \(describe(data)), which is none of them"
        )
      }
      versions.append(version)
    }
    // Each batch takes effect as one step, also for single reads before and after it.
    guard isShared, capabilities.contains(.atomicBatches), let oldest = versions.min(),
      let newest = versions.max()
    else { return }
    if isSnapshot, oldest != newest {
      throw Violation("\(method.call) returned a half of a batch of another engine: versions \(versions)")
    }
    if oldest < latest {
      throw Violation(
        "\(method.call) returned version \(oldest) of what another engine overwrites, after version \(latest)"
      )
    }
    latest = newest
  }
}
