#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif
import StockroomCore
import StockroomKitSupport

/// The steps that an engine performs while its files are recorded. Batches make the store grow, overwrite it and make
/// it shrink. They use each method that takes a batch, imports and transactions. In between there are single writes and
/// removals, the removal of everything, and closing and opening.
struct PowerCutScenario: Codable, Hashable, Sendable {
  let seed: UInt64
  /// How many steps there are.
  let length: Int
  /// The size of the values with which most steps overwrite the same few keys, so that logs are compacted, merged or
  /// restarted. Nil for many small values.
  var overwriteSize: Int?

  /// The operations of a step, numbered from 1. The number of steps is unlimited.
  func operations(of number: Int) -> [StorageOperation] {
    let batches = NumberedBatches(seed: seed)
    let everything = 1 + length * 2 / 3
    if let overwriteSize { return overwrites(of: number, size: overwriteSize) }
    switch number % 6 {
    case _ where number == everything: return [.removeAll]
    case 2 where number < everything || number > everything + 2:
      // A write of one entry, which many engines implement separately.
      var random = SeededRandom(seed: seed, number: number)
      return [.write(Data("single \(number)\n".utf8) + random.bytes(300), key: NumberedBatches.marker)]
    case 1 where number > 1 && number <= length:
      return batches.operations(of: number - 1).compactMap(\.written).map { .remove(key: $0.key) }
    case 3: return batches.operations(of: number).filter { $0.written != nil }
    case 5:
      for case .write(_, let key) in batches.operations(of: number - 1) { return [.remove(key: key)] }
      return batches.operations(of: number)
    default: return batches.operations(of: number)
    }
  }

  /// The operations of a step that overwrites a few keys. The first step writes entries that do not change afterwards.
  /// Before the engine is reopened, 26 large values are written.
  private func overwrites(of number: Int, size: Int) -> [StorageOperation] {
    var random = SeededRandom(seed: seed, number: number)
    func write(_ key: String, _ size: Int) -> StorageOperation {
      .write(Data("step \(number), \(key)\n".utf8) + random.bytes(size), key: CacheKey(verbatim: key))
    }
    let large = (0..<3).map { "large/\($0)" }
    switch number % 8 {
    case _ where number == 1:
      return [.write(Data(), key: CacheKey(verbatim: "still/empty"))]
        + (0..<8).map { write("still/\($0)", $0 * 100) }
    case 3, 7: return [write("single", 300)]
    case 5: return [.remove(key: CacheKey(verbatim: large[2])), write(large[0], size)]
    default: return large.map { write($0, size) }
    }
  }

  /// Performs a step. A single operation is performed by its own method. Of the other steps, every sixth is a
  /// transaction if the engine supports them, and some steps of writes alone are imports. The rest are performed by the
  /// method for several writes, by the one for several removals, or, if a step has both, by `apply(_:)`.
  func perform(_ number: Int, on engine: any StorageEngine) async throws {
    let operations = operations(of: number)
    switch operations.first {
    case .write(let data, let key) where operations.count == 1: try await engine.write(data, key: key)
    case .remove(let key) where operations.count == 1: try await engine.remove(key: key)
    case .removeAll where operations.count == 1: try await engine.removeAllData()
    default:
      let (writes, removals) = (operations.compactMap(\.written), operations.compactMap(\.removed))
      let now = Date()
      if number % 6 == 0, engine.capabilities.contains(.transactions) {
        try await engine.withTransaction { try $0.apply(operations) }
      } else if writes.count == operations.count, number % 12 == 9 {
        try await engine.writeEntries(
          writes.map { StorageEntry(key: $0.key, data: $0.data, createdAt: now, updatedAt: now) })
      } else if writes.count == operations.count {
        try await engine.write(writes)
      } else if removals.count == operations.count {
        try await engine.remove(keys: removals)
      } else {
        try await engine.apply(operations)
      }
    }
  }

  /// Whether the engine is closed and opened again after the step.
  func reopens(after number: Int) -> Bool { overwriteSize == nil ? number % 7 == 0 : number == length - 2 }

  /// A step after all others, to check that the engine still accepts writes.
  static let afterwards = 1_000_003
}

/// One of the outcomes that a power cut may have: the steps whose effects are expected, and one whose effects may be there or not.
struct PowerCutCandidate: Codable, Hashable, Sendable {
  /// All steps up to this one.
  var through: Int
  /// An unacknowledged step among them that is known not to have happened.
  var without: Int?
  var underWay: Int?

  /// What an engine must hold.
  func expectation(
    _ scenario: PowerCutScenario, in capabilities: EngineCapabilities, since beginning: Date
  ) -> ExpectedContents {
    var expected = ExpectedContents(in: capabilities, since: beginning)
    for number in 0..<through where number + 1 != without {
      expected.apply(scenario.operations(of: number + 1))
    }
    return expected
  }
}
