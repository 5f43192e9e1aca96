import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore
import Synchronization
import TestFixtures

// Engines that lose or restore some changes when they are reopened, or after verify().

extension FaultyEngineCase {
  static let ofReopenings: [FaultyEngineCase] = [
    .init(persistent: .w6, "does not save what is written after verify()", also: [.f2]) { base, _ in
      SavesLess(base: base, .afterVerification)
    },
    .init(persistent: .w6, "saves what it verifies, and what was removed since it was opened", also: [.f2]) {
      base, _ in
      SavesWhatItVerifies(base: base)
    },
    .init(persistent: .f2, "has entries in the order in which it has verified them") { base, _ in
      OrdersWhatItVerifies(base: base)
    },
    .init(persistent: .w6, "does not save what is written after removeAllData()") { base, _ in
      SavesLess(base: base, .afterRemovalOfEverything)
    },
    .init(persistent: .w6, "does not save new entries of others") { base, _ in
      SavesLess(base: base, .imports)
    },
    .init(persistent: .w6, "saves shorter values over the beginning of longer ones") { base, _ in
      SavesLess(base: base, .endsOfValues)
    },
    .init(
      persistent: .w6, "does not save what a body removes",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, _ in SavesLess(base: base, .removalsOfBodies) },
    .init(
      persistent: .l2, "does not save that a body has removed something from the count",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in SavesCountsBeforeBodies(base: base, place: place) },
    .init(
      persistent: .r6, "saves what a body removes and writes again as an overwrite",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, place in SavesReplacementsAsOverwrites(base: base, place: place) },
    .init(persistent: .w1, "does not save how many entries share a value") { base, _ in
      SharesValuesForASession(base: base)
    },
    .init(
      persistent: .f2, "calls corrupted what bodies have written",
      claiming: ReferenceEngine.promises.union(.transactions)
    ) { base, _ in CallsWritesOfBodiesCorrupted(base: base) },
    .init(persistent: .w1, "removes nothing after verify()", also: [.c1, .f2]) { base, _ in
      RemovesNothingAfterVerification(base: base)
    },
  ]
}

/// Records the removals of a body.
private final class NotingRemovals: ForwardingTransaction {
  private(set) var removed: [CacheKey: Data] = [:]
  override func remove(key: CacheKey) throws {
    let value = try base.read(key: key)
    try base.remove(key: key)
    if let value { removed[key] = value }
  }
}

/// Records the writes of a body.
private final class NotingWrites: ForwardingTransaction {
  private(set) var keys: Set<CacheKey> = []
  override func write(_ data: Data, key: CacheKey) throws {
    try base.write(data, key: key)
    keys.insert(key)
  }
}

/// Keeps everything in memory. The contents of its file differ, which is visible after reopening.
final class SavesLess: FaultyEngine {
  enum Unsaved: Sendable {
    case afterVerification, afterRemovalOfEverything, imports, endsOfValues, removalsOfBodies
  }

  let base: ReferenceEngine
  private let unsaved: Unsaved
  /// The values in the file of keys that have another value or none in memory; nil stands for absent.
  private let file = MutexProtected<[CacheKey: Data?]>([:])
  private let isLosing = MutexProtected(false)

  init(base: ReferenceEngine, _ unsaved: Unsaved) { (self.base, self.unsaved) = (base, unsaved) }

  private func note(_ key: CacheKey, _ data: Data?) { file.withLock { $0[key] = .some(data) } }

  func write(_ data: Data, key: CacheKey) async throws {
    try await base.write(data, key: key)
    if isLosing.withLock({ $0 }) { note(key, nil) }
  }

  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let old = try await base.readDataAndKeys(keys: dataAndKeys.map(\.key))
    try await base.write(dataAndKeys)
    if isLosing.withLock({ $0 }) {
      for (key, _) in dataAndKeys { note(key, nil) }
    }
    guard unsaved == .endsOfValues else { return }
    let lengths = Dictionary(old.map { ($0.key, $0.data) }) { first, _ in first }
    for (key, data) in dataAndKeys {
      guard let before = lengths[key] else { continue }
      // Longer values replace the old one completely.
      if before.count > data.count {
        note(key, data + before.dropFirst(data.count))
      } else {
        file.withLock { _ = $0.removeValue(forKey: key) }
      }
    }
  }

  func writeEntries(_ entries: [StorageEntry]) async throws {
    let existing = Set(try await base.keysExist(entries.map(\.key)))
    try await base.writeEntries(entries)
    guard unsaved == .imports else { return }
    for entry in entries where !existing.contains(entry.key) { note(entry.key, nil) }
  }

  func removeAllData() async throws {
    try await base.removeAllData()
    file.withLock { $0 = [:] }
    if unsaved == .afterRemovalOfEverything { isLosing.withLock { $0 = true } }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    guard unsaved == .removalsOfBodies else { return try await base.withTransaction(body) }
    let removed = MutexProtected<[CacheKey: Data]>([:])
    let result = try await base.withTransaction { transaction in
      let noting = NotingRemovals(transaction)
      let result = try body(noting)
      let noted = noting.removed
      removed.withLock { $0 = noted }
      return result
    }
    for (key, data) in removed.withLock({ $0 }) where try await base.read(key: key) == nil { note(key, data) }
    return result
  }

  func verify() async throws {
    try await base.verify()
    if unsaved == .afterVerification { isLosing.withLock { $0 = true } }
  }

  func close() async throws {
    let file = file.withLock { file in
      defer { file = [:] }
      return file
    }
    if !file.isEmpty {
      try await base.apply(
        file.map { key, data in
          if let data { StorageOperation.write(data, key: key) } else { StorageOperation.remove(key: key) }
        })
    }
    try await base.close()
  }
}

/// Stores the number of entries in its file without subtracting the removals of bodies.
final class SavesCountsBeforeBodies: FaultyEngine {
  private static let removals = MutexProtected<[String: Int]>([:])
  let base: ReferenceEngine
  private let place: String
  private let surplus: Int

  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    let path = place.path
    surplus = Self.removals.withLock { $0[path] ?? 0 }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let count = MutexProtected(0)
    let result = try await base.withTransaction { transaction in
      let noting = NotingRemovals(transaction)
      let result = try body(noting)
      let removed = noting.removed.count
      count.withLock { $0 = removed }
      return result
    }
    let removed = count.withLock { $0 }
    Self.removals.withLock { [place] in $0[place, default: 0] += removed }
    return result
  }

  func keyCount() async throws -> Int { try await base.keyCount() + surplus }
}

/// After reopening, entries that a body removed and wrote again have their old positions: here, the first.
final class SavesReplacementsAsOverwrites: FaultyEngine {
  private final class RecordingTransaction: ForwardingTransaction {
    private var removed: Set<CacheKey> = []
    private(set) var replaced: Set<CacheKey> = []
    override func remove(key: CacheKey) throws {
      if try base.keyExists(key) { removed.insert(key) }
      try base.remove(key: key)
    }
    override func write(_ data: Data, key: CacheKey) throws {
      try base.write(data, key: key)
      if removed.contains(key) { replaced.insert(key) }
    }
  }

  private static let saved = MutexProtected<[String: Set<CacheKey>]>([:])
  let base: ReferenceEngine
  private let place: String
  private let first: Set<CacheKey>

  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    let path = place.path
    first = Self.saved.withLock { $0[path] ?? [] }
  }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let keys = MutexProtected<Set<CacheKey>>([])
    let result = try await base.withTransaction { transaction in
      let noting = RecordingTransaction(transaction)
      let result = try body(noting)
      let replaced = noting.replaced
      keys.withLock { $0 = replaced }
      return result
    }
    let replaced = keys.withLock { $0 }
    Self.saved.withLock { [place] in $0[place, default: []].formUnion(replaced) }
    return result
  }

  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    return entries.filter { first.contains($0.key) } + entries.filter { !first.contains($0.key) }
  }
}

/// Stores equal large values once. It only counts their entries for values that were written since it was opened.
final class SharesValuesForASession: FaultyBatchEngine {
  let base: ReferenceEngine
  private let counted = MutexProtected<Set<Data>>([])
  init(base: ReferenceEngine) { self.base = base }

  func apply(_ operations: [StorageOperation]) async throws {
    var released: [Data] = []
    for case .remove(let key) in operations {
      if let value = try await base.read(key: key), value.count > 1_000 { released.append(value) }
    }
    let written = operations.compactMap { operation -> Data? in
      if case .write(let data, _) = operation { Data(data) } else { nil }
    }
    counted.withLock { $0.formUnion(written) }
    try await base.apply(operations)
    let known = counted.withLock { $0 }
    for value in released where !known.contains(value) {
      try await base.remove(keys: base.readAllDataAndKeys().filter { $0.data == value }.map(\.key))
    }
  }
}

/// Reports corruption if entries that bodies have written exist, as if they had no checksums.
final class CallsWritesOfBodiesCorrupted: FaultyEngine {
  let base: ReferenceEngine
  private let written = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }

  func withTransaction<Result: Sendable>(
    _ body: @escaping @Sendable (any StorageTransaction) throws -> Result
  ) async throws -> Result {
    let keys = MutexProtected<Set<CacheKey>>([])
    let result = try await base.withTransaction { transaction in
      let noting = NotingWrites(transaction)
      let result = try body(noting)
      let noted = noting.keys
      keys.withLock { $0 = noted }
      return result
    }
    let noted = keys.withLock { $0 }
    written.withLock { $0.formUnion(noted) }
    return result
  }

  func verify() async throws {
    try await base.verify()
    let suspects = written.withLock { Array($0) }
    guard try await base.keysExist(suspects).isEmpty else {
      throw StorageError(.corrupted, "A checksum is missing.")
    }
  }
}

/// Skips the first removal after verify(), as if its file were still open for reading only.
final class RemovesNothingAfterVerification: FaultyEngine {
  let base: ReferenceEngine
  private let isVerified = Atomic(false)
  init(base: ReferenceEngine) { self.base = base }

  func verify() async throws {
    try await base.verify()
    isVerified.store(true, ordering: .relaxed)
  }

  func remove(key: CacheKey) async throws {
    try key.validate()
    let isSkipped = isVerified.exchange(false, ordering: .relaxed)
    if isSkipped { _ = try await base.keyExists(key) } else { try await base.remove(key: key) }
  }
}
