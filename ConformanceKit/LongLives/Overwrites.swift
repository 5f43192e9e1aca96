#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore

/// Overwrites a few keys with many MiB of values and removes them now and then. Other keys are written early and left
/// unchanged. Flushes and compactions must neither lose nor restore any of them.
struct Overwrites {
  private static let keys = ConformanceKit.keys(16)
  private static let still = ConformanceKit.keys(8, prefix: "still-")

  private let engine: EngineUnderTest
  /// A key that was removed before.
  private let removed: CacheKey
  /// The expected entries.
  private var entries: [CacheKey: Data] = [:]
  /// How many MiB have been written.
  private(set) var megabytes = 0

  init(in engine: EngineUnderTest, removed: CacheKey) async throws {
    (self.engine, self.removed) = (engine, removed)
    try await write(ConformanceKit.entries(Self.still.dropLast()))
    // A compaction may take an empty value for a removal.
    if let last = Self.still.last { try await write([(last, Data())]) }
  }

  /// What has been written so far, as a clause.
  var description: String {
    "after \(megabytes) MiB written to \(Self.keys.count) keys, of which 1 MiB is stored,"
  }

  mutating func writeMegabyte() async throws {
    let first = UInt64(megabytes * Self.keys.count + 1)
    try await write(
      Self.keys.enumerated().map { ($0.element, noise(64 << 10, seed: first + UInt64($0.offset))) })
    megabytes += 1
    switch megabytes {
    // In the same table as the previous version, in another one, and in a much later one.
    case 1: try await changeStill(1)
    case 9: try await changeStill(3)
    case 33: try await changeStill(5)
    case let count where count % 8 == 0:
      try await remove(Array(Self.keys.prefix(8)))
      try await verify()
    default: break
    }
  }

  /// Overwrites one of the otherwise unchanged keys, and removes the next one.
  private mutating func changeStill(_ number: Int) async throws {
    try await write(ConformanceKit.entries([Self.still[number]], version: 2))
    try await remove([Self.still[number + 1]])
  }

  private mutating func write(_ batch: [(key: CacheKey, data: Data)]) async throws {
    try await engine.write(batch)
    for (key, data) in batch { entries[key] = data }
  }

  private mutating func remove(_ keys: [CacheKey]) async throws {
    try await engine.remove(keys: keys)
    for key in keys { entries[key] = nil }
  }

  /// Fails unless all entries have their last values.
  func verify() async throws {
    let all = Self.still + Self.keys + [removed]
    do {
      try await expectStored(
        all.compactMap { key in entries[key].map { (key: key, data: $0) } },
        absent: all.filter { entries[$0] == nil },
        in: engine)
    } catch let violation as Violation {
      throw Violation("\(description) \(violation.description)", rule: .w1)
    }
  }
}

/// The resources in use after each stage of writing, and whether they still grow.
struct GrowthSeries {
  /// How many MiB are written in each stage.
  static let stage = 25

  private var files: [Int] = []
  private var memory: [Int] = []

  mutating func append(_ snapshot: ResourceSnapshot) {
    append(files: snapshot.bytes, memory: snapshot.memory)
  }

  mutating func append(files bytes: Int, memory: Int) {
    files.append(bytes)
    self.memory.append(memory)
  }

  /// Whether the maximum in the second half of the stages exceeds that of the first half by at most an eighth of what
  /// the second half wrote. If an engine keeps old versions forever, the maximum grows by all of what was written, or
  /// by a quarter of it if values are compressed.
  var hasStopped: Bool { [files, memory].allSatisfy(Self.isBounded) }

  private static func isBounded(_ held: [Int]) -> Bool {
    let half = held.count / 2
    guard half >= 2, let earlier = held.prefix(half).max(), let later = held.dropFirst(half).max() else {
      return false
    }
    return later - earlier <= (held.count - half) * (stage << 20) / 8
  }
}

/// Overwrites a few entries until an engine has reason to compact its files.
func overwriteMuch(
  _ engine: EngineUnderTest, _ context: CheckContext, until end: ContinuousClock.Instant? = nil
) async throws {
  for round in context.rounds(quick: 20, standard: 150, exhaustive: 1_500, of: "batches of overwrites") {
    if let end, ContinuousClock.now > end { return }
    try await engine.write(keys(12).map { ($0, noise(2_000, seed: UInt64(round))) })
  }
}
