import StockroomCore

#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// A transaction of the engine below, without the entries whose time is over.
final class ExpiringTransaction: BulkReadingTransaction {
  private let base: any StorageTransaction
  private let lifetimes: Lifetimes
  /// One moment for everything that the body reads. What it writes lives from the moment of the write.
  private var look: Lifetimes.Look
  private(set) var writeCount = 0
  /// The expired entries in whose place new ones have been written.
  private(set) var replacedExpired: [CacheKey] = []

  init(base: any StorageTransaction, lifetimes: Lifetimes) {
    (self.base, self.lifetimes, look) = (base, lifetimes, lifetimes.look())
  }

  func read(key: CacheKey) throws -> Data? {
    try base.read(key: key).flatMap { try look.value($0, key: key) }
  }

  func read(keys: [CacheKey]) throws -> [Data] { try readValues(of: keys).compactMap(\.self) }

  func readValues(of keys: [CacheKey]) throws -> [Data?] {
    try zip(keys, base.values(of: keys)).map { key, stored in
      try stored.flatMap { try look.value($0, key: key) }
    }
  }

  func keyExists(_ key: CacheKey) throws -> Bool { try read(key: key) != nil }

  func keyCount() throws -> Int { try scan(.all, limit: nil).count }

  func allKeys() throws -> [CacheKey] { try scan(.all, limit: nil).map(\.key) }

  func scan(_ range: KeyRange, limit: Int?) throws -> [(key: CacheKey, data: Data)] {
    var (range, present) = (range, [(key: CacheKey, data: Data)]())
    let limit = limit.map { max(0, $0) }
    var size = limit
    while true {
      let page = try base.scan(range, limit: size)
      for (key, stored) in page {
        if let data = try look.value(stored, key: key) { present.append((key, data)) }
      }
      guard let limit, let full = size, let last = page.last?.key, page.count >= full, present.count < limit
      else { return Array(present.prefix(limit ?? .max)) }
      range.after = last
      // Where many have expired, a page of what is missing would be one look for each.
      size = full > .max / 2 ? .max : max(2 * full, 64)
    }
  }

  func write(_ data: Data, key: CacheKey) throws {
    try put(data, key: key, livingFor: lifetimes.default)
  }

  func writeEntry(_ entry: StorageEntry) throws {
    try put(entry)
  }

  /// Writes a value. In place of an expired entry that is a new one.
  ///
  /// - Parameter isReplacing: Whether there may be an entry that has expired. Only then is the old value read.
  func put(_ data: Data, key: CacheKey, livingFor lifetime: Duration?, isReplacing: Bool = true) throws {
    try key.validate()
    if isReplacing { try removeIfExpired(key) }
    try base.write(lifetimes.stored(data, livingFor: lifetime), key: key)
    writeCount += 1
  }

  /// As ``put(_:key:livingFor:isReplacing:)``, with the times of the entry and the default lifetime.
  func put(_ entry: StorageEntry, isReplacing: Bool = true) throws {
    try entry.key.validate()
    if isReplacing { try removeIfExpired(entry.key) }
    try base.writeEntry(lifetimes.stored(entry))
    writeCount += 1
  }

  private func removeIfExpired(_ key: CacheKey) throws {
    if let old = try base.read(key: key), lifetimes.isExpired(try lifetimes.times(of: old, key: key)) {
      try base.remove(key: key)
      replacedExpired.append(key)
    }
  }

  func remove(key: CacheKey) throws { try base.remove(key: key) }

  func removeAll() throws { try base.removeAll() }
}
