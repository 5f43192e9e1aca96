import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A transaction of the engine below, without the entries whose time is over.
final class ExpiringTransaction: StorageTransaction {
  private let base: any StorageTransaction
  private let lifetimes: Lifetimes
  /// One moment for everything that the body reads.
  private var look: Lifetimes.Look
  private(set) var writeCount = 0

  init(base: any StorageTransaction, lifetimes: Lifetimes) {
    (self.base, self.lifetimes, look) = (base, lifetimes, lifetimes.look())
  }

  func read(key: CacheKey) throws -> Data? {
    try base.read(key: key).flatMap { try look.value($0, key: key) }
  }

  func read(keys: [CacheKey]) throws -> [Data] {
    try keys.validate()
    return try keys.compactMap(read(key:))
  }

  func keyExists(_ key: CacheKey) throws -> Bool { try read(key: key) != nil }

  func keyCount() throws -> Int { try scan(.all, limit: nil).count }

  func allKeys() throws -> [CacheKey] { try scan(.all, limit: nil).map(\.key) }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    var (range, present) = (range, [(key: CacheKey, data: Data)]())
    while true {
      let missing = limit.map { $0 - present.count }
      let page = try base.scan(range, limit: missing)
      for (key, stored) in page {
        if let data = try look.value(stored, key: key) { present.append((key, data)) }
      }
      guard let missing, let last = page.last?.key, page.count >= missing, present.count < limit ?? 0 else {
        return present
      }
      range.after = last
    }
  }

  func write(_ data: Data, key: CacheKey) throws {
    try key.validate()
    try put(lifetimes.stored(data, livingFor: lifetimes.default), key: key)
  }

  func writeEntry(_ entry: StorageEntry) throws {
    try entry.key.validate()
    try put(lifetimes.stored(entry))
  }

  /// Writes what is stored for a value. In place of an expired entry that is a new one.
  func put(_ stored: Data, key: CacheKey) throws {
    try removeIfExpired(key)
    try base.write(stored, key: key)
    writeCount += 1
  }

  /// Writes what is stored for an entry.
  func put(_ stored: StorageEntry) throws {
    try removeIfExpired(stored.key)
    try base.writeEntry(stored)
    writeCount += 1
  }

  private func removeIfExpired(_ key: CacheKey) throws {
    if let old = try base.read(key: key), try look.isExpired(old, key: key) {
      try base.remove(key: key)
    }
  }

  func remove(key: CacheKey) throws { try base.remove(key: key) }

  func removeAll() throws { try base.removeAll() }
}
