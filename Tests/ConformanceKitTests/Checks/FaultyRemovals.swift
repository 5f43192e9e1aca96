import FaultyEngineWorker
import ConformanceKit
import Foundation
import StockroomCore

// Engines that remove too much or too little, or count wrongly.

extension FaultyEngineCase {
  static let ofRemovals: [FaultyEngineCase] = [
    .init(.d1, "cannot remove absent keys of a batch") { CannotRemoveAbsentKeys(base: $0) },
    .init(.d1, "cannot remove an absent key", also: [.l2, .c1]) { CannotRemoveAnAbsentKey(base: $0) },
    .init(.d1, "removes a thousand keys") { RemovesAThousandKeys(base: $0) },
    .init(.d1, "cannot remove more than 65,535 different keys") {
      BindsEachKeyOnce(base: $0, call: .removal)
    },
    .init(persistent: .d2, "removes the files of others") { RemovesTheDirectory(base: $0, directory: $1) },
    .init(persistent: .d2, "removes the temporary files of others when it is opened") {
      TidiesUpFiles(base: $0, directory: $1) { $0.hasSuffix(".tmp") }
    },
    .init(persistent: .d2, "removes the logs of others when it is opened") {
      TidiesUpFiles(base: $0, directory: $1) { $0.hasSuffix(".log") && $0 != "reference.log" }
    },
    .init(.d2, "removes almost everything") { RemovesAlmostEverything(base: $0) },
    .init(.d2, "cannot be used after removeAllData", also: [.w2, .c4]) {
      RemovesTheTable(base: $0)
    },
    .init(.d2, "keeps the times of what it removed", also: [.w2, .r1]) {
      KeepsTimesOfWhatItRemoved(base: $0)
    },

    .init(.l1, "finds keys in its own order") { FindsKeysInItsOwnOrder(base: $0) },
    .init(.l1, "looks for a thousand keys") { LooksForAThousandKeys(base: $0) },
    .init(.l1, "cannot look for more than 65,535 different keys") {
      BindsEachKeyOnce(base: $0, call: .question)
    },
    .init(.l2, "counts overwrites") { CountsOverwrites(base: $0) },
    // A count that was read during a write is cached as well.
    .init(.l2, "counts once", also: [.c1]) { CountsOnce(base: $0) },
    .init(persistent: .l2, "counts writes when it is opened", fault: .countsWritesWhenOpened),
  ]
}

struct CannotRemoveAbsentKeys: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws {
    let existing = try await base.keysExist(keys)
    if existing.isEmpty, keys.count > 2 { throw StorageError(.io, "There is nothing to remove.") }
    try await base.remove(keys: keys)
  }
}

struct CannotRemoveAnAbsentKey: FaultyEngine {
  let base: ReferenceEngine
  func remove(key: CacheKey) async throws {
    guard try await base.keyExists(key) else { throw StorageError(.io, "There is no \(key).") }
    try await base.remove(key: key)
  }
}

struct RemovesAThousandKeys: FaultyEngine {
  let base: ReferenceEngine
  func remove(keys: [CacheKey]) async throws { try await base.remove(keys: Array(keys.prefix(1_000))) }
}

struct RemovesTheDirectory: FaultyEngine {
  let base: ReferenceEngine
  let directory: URL
  func removeAllData() async throws {
    try await base.removeAllData()
    for file in try FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil)
    where file.lastPathComponent != "reference.log" { try FileManager.default.removeItem(at: file) }
  }
}

/// When it is opened, removes files whose names look like those of its temporary files.
struct TidiesUpFiles: FaultyEngine {
  let base: ReferenceEngine
  init(base: ReferenceEngine, directory: URL, isRemnant: (String) -> Bool) {
    self.base = base
    let path = directory.path(percentEncoded: false)
    for name in (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? [] where isRemnant(name) {
      try? FileManager.default.removeItem(at: directory.appending(path: name))
    }
  }
}

/// Leaves an entry behind when it removes more than 200.
struct RemovesAlmostEverything: FaultyEngine {
  let base: ReferenceEngine
  func removeAllData() async throws {
    let keys = try await base.allKeys()
    try await base.remove(keys: keys.count > 200 ? Array(keys.dropLast()) : keys)
  }
}

/// Drops the table, which is only created when the engine is opened.
final class RemovesTheTable: FaultyEngine {
  let base: ReferenceEngine
  private let hasTable = MutexProtected(true)
  init(base: ReferenceEngine) { self.base = base }
  func removeAllData() async throws {
    try await base.removeAllData()
    hasTable.withLock { $0 = false }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    guard hasTable.withLock({ $0 }) else { throw StorageError(.io, "There is no such table.") }
    try await base.write(dataAndKeys)
  }
}

/// Keeps times in a separate table.
final class KeepsTimesOfWhatItRemoved: FaultyEngine {
  let base: ReferenceEngine
  private let times = MutexProtected<[CacheKey: Date]>([:])
  init(base: ReferenceEngine) { self.base = base }
  func removeAllData() async throws {
    let entries = try await base.readAllEntries()
    try await base.removeAllData()
    times.withLock { times in for entry in entries { times[entry.key] = entry.createdAt } }
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    let created = try await base.createdAt(key: key)
    return times.withLock { $0[key] } ?? created
  }
}

/// Binds each key of a request once, to one variable of a statement.
struct BindsEachKeyOnce: FaultyEngine {
  enum Call { case read, question, removal }

  let base: ReferenceEngine
  let call: Call

  private func expectRoom(for keys: [CacheKey], in call: Call) throws {
    guard call == self.call, keys.count > 65_535, Set(keys).count > 65_535 else { return }
    throw StorageError(.io, "There are too many variables in the statement.")
  }
  func read(keys: [CacheKey]) async throws -> [Data] {
    try expectRoom(for: keys, in: .read)
    return try await base.read(keys: keys)
  }
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try expectRoom(for: keys, in: .question)
    return try await base.keysExist(keys)
  }
  func remove(keys: [CacheKey]) async throws {
    try expectRoom(for: keys, in: .removal)
    try await base.remove(keys: keys)
  }
}

struct FindsKeysInItsOwnOrder: FaultyEngine {
  let base: ReferenceEngine
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] { try await base.keysExist(keys.sorted()) }
}

struct LooksForAThousandKeys: FaultyEngine {
  let base: ReferenceEngine
  func keysExist(_ keys: [CacheKey]) async throws -> [CacheKey] {
    try await base.keysExist(Array(keys.prefix(1_000)))
  }
}

/// Counts the writes instead of the keys.
final class CountsOverwrites: FaultyEngine {
  let base: ReferenceEngine
  private let surplus = MutexProtected(0)
  init(base: ReferenceEngine) { self.base = base }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    let existing = try await base.keysExist(dataAndKeys.map(\.key)).count
    try await base.write(dataAndKeys)
    surplus.withLock { $0 += existing }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    surplus.withLock { $0 = 0 }
  }
  func keyCount() async throws -> Int { try await base.keyCount() + surplus.withLock { $0 } }
}

/// Only updates its count after a batch or `removeAllData()`.
final class CountsOnce: FaultyEngine {
  let base: ReferenceEngine
  private let count = MutexProtected<Int?>(nil)
  init(base: ReferenceEngine) { self.base = base }
  func keyCount() async throws -> Int {
    if let count = count.withLock({ $0 }) { return count }
    let new = try await base.keyCount()
    count.withLock { $0 = new }
    return new
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    count.withLock { $0 = nil }
  }
  func removeAllData() async throws {
    try await base.removeAllData()
    count.withLock { $0 = nil }
  }
}
