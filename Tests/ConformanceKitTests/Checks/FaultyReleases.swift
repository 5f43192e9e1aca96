import ConformanceKit
import FaultyEngineWorker
import Foundation
import StockroomCore

// Engines that lose something when they are released without close(), or confuse the engines on a place.

extension FaultyEngineCase {
  static let ofReleases: [FaultyEngineCase] = [
    .init(persistent: .r6, "saves which positions it has given away when it is closed") { base, place in
      CountsPositionsAnew(base: base, place: place)
    },
    .init(persistent: .r6, "orders imported entries by their times when it is opened") { base, place in
      OrdersImportsWhenOpened(base: base, place: place)
    },
    .init(persistent: .w6, "dates what was removed and written by its first write when it is opened") {
      base, place in DatesByFirstWrites(base: base, place: place)
    },
    .init(persistent: .w6, "removes everything when it is closed") { base, _ in
      RemovesAllWhenClosed(base: base)
    },
    .init(persistent: .c2, "does not see what was written before it was opened beside another") {
      base, place in HidesEarlierEntries(base: base, place: place)
    },
    .init(persistent: .c2, "closes the other engines on its place when it is dropped") { base, place in
      ClosesOthersWhenDropped(base: base, place: place)
    },
    .init(persistent: .c2, "knows places by the names of their directories") { base, place in
      KnowsPlacesByTheirNames(base, place)
    },
  ]
}

/// Saves the number of positions when it is closed. Without that, new entries get the positions of old ones.
final class CountsPositionsAnew: FaultyEngine {
  private struct Place {
    var isOpen = false
    /// The keys whose positions had already been assigned.
    var early: [CacheKey] = []
  }
  private static let places = MutexProtected<[String: Place]>([:])
  let base: ReferenceEngine
  private let place: String
  private let isBehind: Bool
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    isBehind = Self.places.withLock { [path = place.path] places in
      defer { places[path, default: Place()].isOpen = true }
      return places[path]?.isOpen ?? false
    }
  }
  func write(_ data: Data, key: CacheKey) async throws {
    let isNew = try await !base.keyExists(key)
    try await base.write(data, key: key)
    if isNew, isBehind { Self.places.withLock { [place] in $0[place]?.early.append(key) } }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    let early = Set(Self.places.withLock { [place] in $0[place]?.early ?? [] })
    return entries.filter { early.contains($0.key) } + entries.filter { !early.contains($0.key) }
  }
  func close() async throws {
    Self.places.withLock { [place] in $0[place]?.isOpen = false }
    try await base.close()
  }
}

/// When it is opened, sorts imported entries by their given creation times.
final class OrdersImportsWhenOpened: FaultyEngine {
  private static let imports = MutexProtected<[String: [CacheKey: Date]]>([:])
  let base: ReferenceEngine
  private let place: String
  /// The given times of the entries that were imported before.
  private let times: [CacheKey: Date]
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    times = Self.imports.withLock { [path = place.path] in $0[path] ?? [:] }
  }
  func writeEntries(_ entries: [StorageEntry]) async throws {
    try await base.writeEntries(entries)
    Self.imports.withLock { [place] imports in
      for entry in entries { imports[place, default: [:]][entry.key] = entry.createdAt }
    }
  }
  func readAllEntries() async throws -> [StorageEntry] {
    let entries = try await base.readAllEntries()
    return times.isEmpty
      ? entries : entries.sorted { times[$0.key] ?? $0.createdAt < times[$1.key] ?? $1.createdAt }
  }
}

/// When it is opened, treats the removal and the write of a key in its log as an overwrite, as far as times are
/// concerned.
final class DatesByFirstWrites: FaultyEngine {
  private static let created = MutexProtected<[String: [CacheKey: Date]]>([:])
  let base: ReferenceEngine
  private let place: String
  /// When the keys that existed before were first written.
  private let first: [CacheKey: Date]
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    first = Self.created.withLock { [path = place.path] in $0[path] ?? [:] }
  }
  func write(_ dataAndKeys: [(key: CacheKey, data: Data)]) async throws {
    try await base.write(dataAndKeys)
    for entry in try await base.readEntries(keys: dataAndKeys.map(\.key)) {
      Self.created.withLock { [place] created in
        if created[place]?[entry.key] == nil { created[place, default: [:]][entry.key] = entry.createdAt }
      }
    }
  }
  private func dated(_ entry: StorageEntry) -> StorageEntry {
    var entry = entry
    entry.createdAt = first[entry.key] ?? entry.createdAt
    return entry
  }
  func createdAt(key: CacheKey) async throws -> Date? {
    try await base.createdAt(key: key).map { first[key] ?? $0 }
  }
  func readEntries(keys: [CacheKey]) async throws -> [StorageEntry] {
    try await base.readEntries(keys: keys).map(dated)
  }
  func readAllEntries() async throws -> [StorageEntry] { try await base.readAllEntries().map(dated) }
}

/// Hides the entries that `removeAllData()` removes, and removes them from its file when it is closed.
final class RemovesAllWhenClosed: FaultyEngine {
  let base: ReferenceEngine
  private let removed = MutexProtected<[CacheKey: Data]>([:])
  init(base: ReferenceEngine) { self.base = base }
  deinit {
    guard let there = try? base.everything().map(\.key) else { return }
    let left = removed.withLock { $0 }.filter { !there.contains($0.key) }
    if !left.isEmpty { try? base.commit(left.map { .write($0.value, key: $0.key) }) }
  }
  func removeAllData() async throws {
    let entries = try await base.readAllDataAndKeys()
    try await base.removeAllData()
    removed.withLock { removed in for (key, data) in entries { removed[key] = data } }
  }
  func close() async throws {
    removed.withLock { $0 = [:] }
    try await base.close()
  }
}

/// If another engine is open on its place, does not see earlier entries until something changes.
final class HidesEarlierEntries: InterceptingEngine {
  private struct Place {
    var openCount = 0
    var changes = 0
  }
  private static let places = MutexProtected<[String: Place]>([:])
  let base: ReferenceEngine
  private let place: String
  private let changesBefore: Int
  private let hidden: Set<CacheKey>
  private let isClosed = MutexProtected(false)
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    let (isAlone, changes) = Self.places.withLock { [path = place.path] places in
      defer { places[path, default: Place()].openCount += 1 }
      return (places[path]?.openCount ?? 0 == 0, places[path]?.changes ?? 0)
    }
    changesBefore = changes
    // A place that cannot be read has nothing to hide.
    let there = (try? base.everything().map(\.key)) ?? []
    hidden = isAlone ? [] : Set(there)
  }
  deinit { leave() }

  private func leave() {
    let isLast = isClosed.withLock { isClosed in
      defer { isClosed = true }
      return isClosed
    }
    if !isLast { Self.places.withLock { [place] in $0[place]?.openCount -= 1 } }
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if isChange { Self.places.withLock { [place] in $0[place]?.changes += 1 } }
    return try await work()
  }
  func read(key: CacheKey) async throws -> Data? {
    let value = try await base.read(key: key)
    let changes = Self.places.withLock { [place] in $0[place]?.changes ?? 0 }
    return changes == changesBefore && hidden.contains(key) ? nil : value
  }
  func close() async throws {
    leave()
    try await base.close()
  }
}

/// Releases the lock of its place when it is dropped without close(), which the other engines there rely on.
final class ClosesOthersWhenDropped: InterceptingEngine {
  private static let drops = MutexProtected<[String: Int]>([:])
  let base: ReferenceEngine
  private let place: String
  private let dropsBefore: Int
  private let isClosed = MutexProtected(false)
  init(base: ReferenceEngine, place: URL) {
    (self.base, self.place) = (base, place.path)
    dropsBefore = Self.drops.withLock { [path = place.path] in $0[path] ?? 0 }
  }
  deinit {
    if !isClosed.withLock({ $0 }) { Self.drops.withLock { [place] in $0[place, default: 0] += 1 } }
  }
  func call<Result: Sendable>(
    isChange: Bool, _ work: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    let drops = Self.drops.withLock { [place] in $0[place] ?? 0 }
    if drops > dropsBefore { throw StorageError(.io, "The lock of \(place) has been released.") }
    return try await work()
  }
  func close() async throws {
    isClosed.withLock { $0 = true }
    try await base.close()
  }
}

/// Shares what it has open with engines on other directories that have the same name.
struct KnowsPlacesByTheirNames: FaultyEngine {
  private struct Open: Sendable {
    let place: String
    weak var base: ReferenceEngine?
  }
  private static let open = MutexProtected<[String: Open]>([:])
  let base: ReferenceEngine
  init(_ base: ReferenceEngine, _ place: URL) {
    // Only within the directory of one check, since all places of checks have the same name.
    let name =
      place.deletingLastPathComponent().deletingLastPathComponent().path + "/" + place.lastPathComponent
    let path = place.path
    self.base = Self.open.withLock { open in
      if let other = open[name], other.place != path, let shared = other.base { return shared }
      open[name] = Open(place: path, base: base)
      return base
    }
  }
}
