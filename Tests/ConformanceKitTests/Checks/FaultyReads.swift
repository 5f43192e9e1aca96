import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines whose reads return too much, too little, or the wrong order.

extension FaultyEngineCase {
  static let ofReads: [FaultyEngineCase] = [
    .init(.r1, "throws for absent keys", also: [.k2, .k3, .k4, .v1, .w1, .w4, .w5, .d1, .d2, .c1, .c4]) {
      ThrowsForAbsentKeys(base: $0)
    },
    .init(.r1, "throws for times of absent keys", also: [.k2, .k4, .w2, .d2, .c1]) {
      ThrowsForTimesOfAbsentKeys(base: $0)
    },
    .init(.r1, "throws when there is nothing", also: [.d2, .r3]) { ThrowsWhenThereIsNothing(base: $0) },
    .init(.r1, "says that removed keys exist", also: [.c1]) { SaysThatRemovedKeysExist(base: $0) },
    .init(.r1, "finds removed keys among many") { FindsRemovedKeysAmongMany(base: $0) },

    .init(.r2, "answers in its own order") { AnswersInItsOwnOrder(base: $0) },
    .init(.r2, "answers as answers come", also: [.w4]) { AnswersAsTheyCome(base: $0) },
    .init(.r2, "answers repeats once") { AnswersRepeatsOnce(base: $0) },
    .init(.r2, "gives an empty value for an absent key", also: [.r1, .k2, .v1, .w4]) {
      GivesEmptyForAbsent(base: $0)
    },
    .init(.r2, "answers a thousand keys") { AnswersAThousandKeys(base: $0) },
    // The number of variables of a statement is limited.
    .init(.r2, "cannot ask for more than 32,766 keys") { CannotAskForMany(base: $0) },
    .init(.r2, "cannot ask for more than 65,535 different keys") { BindsEachKeyOnce(base: $0, call: .read) },

    .init(.r3, "gives equal values once") { GivesEqualValuesOnce(base: $0) },
    .init(.r3, "gives removed values") { GivesRemovedValues(base: $0) },
    .init(.r3, "pairs keys with values of others", also: [.r5]) { PairsWithOthers(base: $0) },

    .init(.r4, "gives nothing when a read fails", also: [.o3]) { SaysNilWhenReadingFails(base: $0) },
    .init(.r4, "says nil when a read fails", also: [.o3]) { SaysNilWhenOneReadFails(base: $0) },
    .init(.r4, "finds no entries of keys when a read fails", also: [.o3]) {
      FindsNoEntriesWhenReadingFails(base: $0)
    },

    .init(.r6, "lists entries by key") { ListsEntriesByKey(base: $0) },
    .init(.r6, "reads some entries in the order of the request") { ReadsEntriesInOrderOfRequest(base: $0) },
    .init(.r6, "reads some entries twice") { ReadsEntriesTwice(base: $0) },
    .init(.r6, "lists entries by last write") { ListsEntriesByLastWrite(base: $0) },
    .init(.r6, "sorts batches") { SortsBatches(base: $0) },
    .init(.r6, "sorts what replaces everything") { SortsReplacements(base: $0) },
    .init(.r6, "puts what is written twice at the end of a batch") { PutsRepeatsLast(base: $0) },
    .init(.r6, "remembers the place of what was removed") { RemembersPlaces(base: $0) },
    .init(persistent: .r6, "orders entries by key when it is opened", fault: .ordersByKeyWhenOpened),
    .init(persistent: .r6, "numbers entries in turns of one engine", fault: .numbersInItsOwnTurn),
  ]
}

struct ThrowsForAbsentKeys: FaultyEngine {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? {
    guard let data = try await base.read(key: key) else { throw StorageError(.io, "There is no \(key).") }
    return data
  }
}

struct ThrowsForTimesOfAbsentKeys: FaultyEngine {
  let base: ReferenceEngine
  func createdAt(key: CacheKey) async throws -> Date? {
    guard let date = try await base.createdAt(key: key) else {
      throw StorageError(.io, "There is no \(key).")
    }
    return date
  }
}

struct ThrowsWhenThereIsNothing: FaultyEngine {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] {
    let values = try await base.readAllData()
    if values.isEmpty { throw StorageError(.io, "There is no such table.") }
    return values
  }
}

/// Has a filter of written keys from which nothing is removed.
final class SaysThatRemovedKeysExist: FaultyEngine {
  let base: ReferenceEngine
  private let removed = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    if try await base.keyExists(key) { removed.withLock { _ = $0.insert(key) } }
    try await base.remove(key: key)
  }
  func keyExists(_ key: CacheKey) async throws -> Bool {
    let exists = try await base.keyExists(key)
    return exists || removed.withLock { $0.contains(key) }
  }
}

final class FindsRemovedKeysAmongMany: FaultyEngine {
  let base: ReferenceEngine
  private let removed = MutexProtected<Set<CacheKey>>([])
  init(base: ReferenceEngine) { self.base = base }
  func remove(keys: [CacheKey]) async throws {
    let existing = try await base.keysExist(keys)
    try await base.remove(keys: keys)
    removed.withLock { $0.formUnion(existing) }
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    let (existing, removed) = (Set(try await base.keysExist(keys)), removed.withLock { $0 })
    return keys.filter { existing.contains($0) || removed.contains($0) }
  }
}

struct AnswersInItsOwnOrder: FaultyEngine {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: keys.sorted()) }
}

/// Reads concurrently, and collects the results in order of arrival.
struct AnswersAsTheyCome: FaultyEngine {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] {
    if keys.count > 1_000 { return try await base.read(keys: keys) }
    return try await withThrowingTaskGroup { group in
      for (index, key) in keys.enumerated() {
        group.addTask { [base] in
          for _ in 0..<(index * 7 % 5) { await Task.yield() }
          return try await base.read(key: key)
        }
      }
      var values: [Data] = []
      for try await value in group { if let value { values.append(value) } }
      return values
    }
  }
}

struct AnswersRepeatsOnce: FaultyEngine {
  let base: ReferenceEngine
  func readDataAndKeys(keys: [CacheKey]) async throws -> [(key: CacheKey, data: Data)] {
    var seen: Set<CacheKey> = []
    return try await base.readDataAndKeys(keys: keys.filter { seen.insert($0).inserted })
  }
}

struct GivesEmptyForAbsent: FaultyEngine {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] {
    if keys.count > 1_000 { return try await base.read(keys: keys) }
    try keys.validate()
    var values: [Data] = []
    for key in keys { values.append(try await base.read(key: key) ?? Data()) }
    return values
  }
}

struct AnswersAThousandKeys: FaultyEngine {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] { try await base.read(keys: Array(keys.prefix(1_000))) }
}

struct CannotAskForMany: FaultyEngine {
  let base: ReferenceEngine
  func read(keys: [CacheKey]) async throws -> [Data] {
    if keys.count > 32_766 { throw StorageError(.io, "There are too many variables in the statement.") }
    return try await base.read(keys: keys)
  }
}

struct GivesEqualValuesOnce: FaultyEngine {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] { Array(Set(try await base.readAllData())) }
}

final class GivesRemovedValues: FaultyEngine {
  let base: ReferenceEngine
  private let removed = MutexProtected<[Data]>([])
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    let value = try await base.read(key: key)
    try await base.remove(key: key)
    if let value { removed.withLock { $0.append(value) } }
  }
  func readAllData() async throws -> [Data] { try await base.readAllData() + removed.withLock { $0 } }
  func removeAllData() async throws {
    try await base.removeAllData()
    removed.withLock { $0 = [] }
  }
}

/// Reads keys and values in two different orders, and pairs them.
struct PairsWithOthers: FaultyEngine {
  let base: ReferenceEngine
  func readAllDataAndKeys() async throws -> [(key: CacheKey, data: Data)] {
    let entries = try await base.readAllDataAndKeys()
    // Overwrites move a row.
    guard entries.count > 15 else { return entries }
    return zip(entries.map(\.key), entries.dropFirst().map(\.data) + entries.prefix(1).map(\.data)).map {
      ($0, $1)
    }
  }
}

struct SaysNilWhenReadingFails: FaultyEngine {
  let base: ReferenceEngine
  func readAllData() async throws -> [Data] { (try? await base.readAllData()) ?? [] }
}

struct SaysNilWhenOneReadFails: FaultyEngine {
  let base: ReferenceEngine
  func read(key: CacheKey) async throws -> Data? {
    try key.validate()
    return try? await base.read(key: key)
  }
}

struct ListsEntriesByKey: FaultyEngine {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().sorted { $0.key < $1.key }
  }
}

struct ReadsEntriesInOrderOfRequest: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let entries = Dictionary(try await base.readEntries(keys: keys).map { ($0.key, $0) }) { first, _ in first
    }
    var asked: Set<CacheKey> = []
    return keys.filter { asked.insert($0).inserted }.compactMap { entries[$0] }
  }
}

struct ReadsEntriesTwice: FaultyEngine {
  let base: ReferenceEngine
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    let entries = try await base.readEntries(keys: keys)
    return entries.flatMap { entry in keys.filter { $0 == entry.key }.map { _ in entry } }
  }
}

struct ListsEntriesByLastWrite: FaultyEngine {
  let base: ReferenceEngine
  func readAllEntries() async throws -> [StorageEntry] {
    try await base.readAllEntries().sorted { ($0.updatedAt, $0.key) < ($1.updatedAt, $1.key) }
  }
}

/// Takes the entries of a batch from a dictionary.
struct SortsBatches: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let sorted = dataAndKeys.enumerated().sorted { ($0.element.key, $0.offset) < ($1.element.key, $1.offset) }
    try await base.write(sorted.map(\.element))
  }
}

/// Writes a new file from a dictionary if a batch begins by removing everything.
struct SortsReplacements: FaultyEngine {
  let base: ReferenceEngine
  func apply(_ operations: [StorageOperation]) async throws {
    guard operations.first == .removeAll else { return try await base.apply(operations) }
    try operations.validate()
    var last: [CacheKey: StorageOperation] = [:]
    for operation in operations {
      switch operation {
      case .write(_, let key): last[key] = operation
      case .remove(let key): last[key] = nil
      case .removeAll: last = [:]
      }
    }
    try await base.apply([.removeAll] + last.sorted { $0.key < $1.key }.map(\.value))
  }
}

struct PutsRepeatsLast: FaultyEngine {
  let base: ReferenceEngine
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    var seen: Set<CacheKey> = []
    try await base.write(dataAndKeys.reversed().filter { seen.insert($0.key).inserted }.reversed())
  }
}

/// Never deletes a row, but marks it as deleted.
final class RemembersPlaces: FaultyEngine {
  let base: ReferenceEngine
  private let places = MutexProtected<[CacheKey: Int]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func remove(key: CacheKey) async throws {
    _ = try await readAllEntries()
    try await base.remove(key: key)
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    return places.withLock { places in
      for entry in entries where places[entry.key] == nil { places[entry.key] = places.count }
      return entries.sorted { places[$0.key, default: 0] < places[$1.key, default: 0] }
    }
  }
}
